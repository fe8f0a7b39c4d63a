//! kubelet PodResources v1, device plugin v1beta1 and CRI v1: clients and servers over unix sockets
