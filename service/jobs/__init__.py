"""The use case "load -> plan -> verify -> store", the queue, and the solver processes."""
