//! Scenarios, the serial engine and numaresources-tests
