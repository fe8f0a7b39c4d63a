//! Result model of a run and its readers: event log, JUnit, JSON
