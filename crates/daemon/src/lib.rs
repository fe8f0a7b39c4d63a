//! What every daemon of the stack needs: logs, signals, health and metrics endpoints, leader election
