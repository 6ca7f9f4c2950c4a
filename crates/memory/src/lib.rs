//! Where do bytes live? Regions with a placement policy, huge pages, accounts of who owns what.
