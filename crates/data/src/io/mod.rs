//! Files that others wrote, and files that others will read.

pub mod torch;
