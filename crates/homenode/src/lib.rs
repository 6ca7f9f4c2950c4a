//! The relational database for machines whose memory is not uniform.
