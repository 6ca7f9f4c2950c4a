//! Which pages are in memory? Frames, replacement, page cleaning, page input and output.
