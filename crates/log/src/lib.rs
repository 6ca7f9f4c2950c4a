//! What survives? Write-ahead log, group commit, checkpoints, control file.
