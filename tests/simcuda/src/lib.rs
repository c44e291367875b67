//! Simulated driver.
