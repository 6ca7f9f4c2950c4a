//! Who may touch this now? Optimistic, shared and exclusive page latches with a fair queue.
