//! The check that ggml's structures have the known layout: ggml builds a small graph, and its fields are compared.

use std::ffi::{CStr, c_int, c_void};

use crate::function_tables::GgmlFunctions;
use crate::ggml_abi::{GgmlInitParams, GgmlTensor};

/// ggml's number of f32, and the flags of inputs and outputs.
const F32: c_int = 0;
const INPUT: i32 = 1;
const OUTPUT: i32 = 2;

/// Checks that ggml's structures have the known layout. `Err` says what is different.
pub(crate) fn check_abi(ggml: &GgmlFunctions) -> Result<(), String> {
    // Pages of our own and not the process's heap: after a large block was freed, malloc would keep more of what the program
    // frees later.
    let pages = AnonymousPages::new(4 << 20).ok_or("out of memory for a test graph")?;
    let params = GgmlInitParams { mem_size: pages.size, mem_buffer: pages.start, no_alloc: false };
    // SAFETY: the memory outlives the context.
    let context = unsafe { (ggml.ggml_init)(params) };
    if context.is_null() {
        return Err("ggml_init returned no context".into());
    }
    // SAFETY: the context has room for three small tensors and a graph of the default size, and is ours alone.
    let verdict = unsafe { compare_layouts(ggml, context) };
    // SAFETY: made above, and freed once.
    unsafe { (ggml.ggml_free)(context) };
    verdict
}

/// Memory straight from the system, of which only what is touched exists.
struct AnonymousPages {
    start: *mut c_void,
    size: usize,
}

impl AnonymousPages {
    fn new(size: usize) -> Option<Self> {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new pages wherever there is room.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), size, protection, flags, -1, 0) };
        (start != libc::MAP_FAILED).then_some(Self { start, size })
    }
}

impl Drop for AnonymousPages {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and not used any more.
        unsafe { libc::munmap(self.start, self.size) };
    }
}

/// Builds a small graph and compares every field that is read with what it must be.
///
/// # Safety
/// The context is one of this ggml's, with room.
unsafe fn compare_layouts(ggml: &GgmlFunctions, context: crate::ggml_abi::GgmlContext) -> Result<(), String> {
    // SAFETY: plain calls of builders with tensors of the same context.
    let (x, row, sum, graph) = unsafe {
        let x = (ggml.ggml_new_tensor_2d)(context, F32, 7, 5);
        (ggml.ggml_set_input)(x);
        (ggml.ggml_set_name)(x, c"steeve looks".as_ptr());
        let row = (ggml.ggml_view_1d)(context, x, 7, 56);
        let sum = (ggml.ggml_add)(context, x, row);
        (ggml.ggml_set_output)(sum);
        let graph = (ggml.ggml_new_graph)(context);
        (ggml.ggml_build_forward_expand)(graph, sum);
        (x, row, sum, graph)
    };
    if [x, row, sum].iter().any(|tensor| tensor.is_null()) || graph.is_null() {
        return Err("ggml built no graph".into());
    }
    // SAFETY: pointers to what ggml has just built. Each is longer than what we know of it, in every version there is;
    // and before the graph's lists are followed, their lengths have been seen to be right.
    let (x_is, row_is, sum_is, graph_is) = unsafe { (&*x, &*row, &*sum, &*graph) };
    let expect = |right: bool, what: &str| if right { Ok(()) } else { Err(format!("unknown layout: {what}")) };
    expect(x_is.dtype == F32 && x_is.ne == [7, 5, 1, 1] && x_is.nb == [4, 28, 140, 140], "shapes and strides")?;
    expect(x_is.op == 0 && row_is.op != 0 && sum_is.op != 0 && sum_is.op != row_is.op, "operations")?;
    expect(x_is.flags & 15 == INPUT && row_is.flags & 15 == 0 && sum_is.flags & 15 == OUTPUT, "flags")?;
    let sources = |of: &GgmlTensor, are: &[*mut GgmlTensor]| {
        of.src.iter().zip(are.iter().copied().chain(std::iter::repeat(std::ptr::null_mut()))).all(|(a, b)| *a == b)
    };
    expect(sources(x_is, &[]) && sources(row_is, &[x]) && sources(sum_is, &[x, row]), "sources")?;
    expect(x_is.view_src.is_null() && row_is.view_src == x && row_is.view_offs == 56, "views")?;
    let in_x = x_is.data.addr().wrapping_add(row_is.view_offs);
    let buffers = [x_is.buffer, row_is.buffer, sum_is.buffer];
    expect(!x_is.data.is_null() && row_is.data.addr() == in_x && sum_is.data.addr() != x_is.data.addr(), "addresses")?;
    expect(buffers.iter().all(|buffer| buffer.is_null()), "buffers")?;
    // SAFETY: 64 bytes of a name, which ggml ends with a zero.
    expect(unsafe { CStr::from_ptr(x_is.name.as_ptr()) } == c"steeve looks", "names")?;
    expect(graph_is.n_nodes == 2 && graph_is.n_leafs == 1 && graph_is.size >= 2, "node counts")?;
    expect(!graph_is.nodes.is_null() && !graph_is.leafs.is_null(), "nodes")?;
    // SAFETY: two nodes and one leaf, as just seen.
    let (nodes, leaf) = unsafe { ([*graph_is.nodes, *graph_is.nodes.add(1)], *graph_is.leafs) };
    expect(nodes == [row, sum] && leaf == x, "nodes")
}
