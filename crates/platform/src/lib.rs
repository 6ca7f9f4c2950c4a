//! What does the code run on? The seam between the engine and the machine, real or simulated.
