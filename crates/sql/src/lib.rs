//! What does this statement mean, and how is it run? Parse, bind, plan, execute.
