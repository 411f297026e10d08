//! The code that all Rust servers of the lab share, so that they differ only in their frameworks.
//! It implements every part of the HTTP contract that is not HTTP itself.

pub mod answer;
pub mod app;
pub mod config;
pub mod devices;
pub mod experiment;
mod head_scan;
pub mod json;
mod object;
pub mod process;
pub mod stats;
pub mod store;
pub mod watched;
