//! Graphs from text, and memories to put them in.

use std::sync::Arc;

use steeve_device::{Bindings, BufferType, Device, DiscreteDevice, HostMemory, MemorySpec};
use steeve_graph::{Align, AssignedGraph, Context, Graph, Id, Tensor, TensorId, View};

/// A graph with its assignment.
pub(crate) fn assigned(text: &str) -> AssignedGraph {
    text.parse().unwrap_or_else(|error| panic!("{error} in\n{text}"))
}

/// A graph.
pub(crate) fn graph(text: &str) -> Graph {
    assigned(text).into_graph()
}

/// The tensor with a name.
pub(crate) fn tensor(graph: &Graph, name: &str) -> TensorId {
    graph.tensors().ids().find(|id| graph.name(*id) == name).unwrap_or_else(|| panic!("there is no {name}"))
}

/// A context with the tensors of a text, in its order.
pub(crate) fn context(text: &str) -> Context {
    let graph = graph(text);
    let mut context = Context::new();
    // By number, for the ids of the graph are none of the context's.
    let bare = |id: TensorId| TensorId::from_index(id.index()).unwrap();
    for (id, tensor) in graph.tensors().pairs() {
        let view = tensor.view.map(|view| View { root: bare(view.root), ..view });
        let sources: Vec<_> = graph.sources(id).iter().map(|source| source.map(bare)).collect();
        let made = context.add_tensor(Tensor { view, ..*tensor }, &sources, graph.params(id)).unwrap();
        assert_eq!(made, id);
        context.set_name(made, graph.name(id)).unwrap();
    }
    context
}

/// Bindings that go by the numbers of tensors, for graphs of several contexts.
pub(crate) fn by_number(bindings: &Bindings) -> Bindings {
    let mut bare = Bindings::new();
    for (tensor, address) in bindings.iter() {
        let tensor = TensorId::from_index(tensor.index()).unwrap();
        bare.bind(tensor, address.buffer, address.offset, address.size).unwrap();
    }
    bare
}

/// Memory of this process, aligned to 32.
pub(crate) fn host() -> Arc<dyn BufferType> {
    Arc::new(HostMemory::new())
}

/// A device with memory aligned to `align`.
pub(crate) fn device(align: u64) -> DiscreteDevice {
    DiscreteDevice::new(spec(align))
}

/// Memory called `gpu`.
pub(crate) fn spec(align: u64) -> MemorySpec {
    MemorySpec::new("gpu").with_align(Align::new(align).unwrap())
}

/// The memory of a device.
pub(crate) fn memory(device: &dyn Device) -> Arc<dyn BufferType> {
    Arc::clone(&device.buffer_types()[0])
}
