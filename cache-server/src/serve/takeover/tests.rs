//! Watches over streams in memory, against scripted bodies.
