//! Sessions of writers.
