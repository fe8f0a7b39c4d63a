//! Every object that the operator and the deployer install, as typed values from plain options
