//! Laws of byte budgets: they fail early, and say who is to blame.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, reason = "every test uses some of it")]
mod graphs;

use std::sync::Arc;

use graphs::{assigned, device, graph, memory, spec, tensor};
use steeve_device::{Bindings, Bytes, DiscreteDevice};
use steeve_graph::Graph;
use steeve_runtime::{AllocError, AllocOptions, GraphAllocator};

/// Most is live when `b` is computed: `x`, `a` and `b`.
fn peaked(size: u64) -> Graph {
    graph(&format!(
        "x = input i8[{size}]; a = ?F i8[{}] x; b = ?JOIN i8[{}] x a; y = ?F i8[{size}] b !output",
        2 * size,
        3 * size
    ))
}

fn limited(device: &DiscreteDevice, bytes: u64) -> GraphAllocator {
    GraphAllocator::new(&memory(device)).with_options(AllocOptions::new().with_budget(0, Bytes(bytes)))
}

#[test]
fn what_fits_the_budget_to_the_byte_is_no_error() {
    let device = device(8);
    limited(&device, 6 * 64).reserve(&peaked(64)).unwrap();
    limited(&device, 6 * 64).alloc(&peaked(64), &Bindings::new()).unwrap();
    assert!(limited(&device, 6 * 64 - 1).reserve(&peaked(64)).is_err());
}

#[test]
fn a_plan_above_the_budget_fails_before_anything_is_allocated_and_names_the_tensors_at_the_peak() {
    let device = device(8);
    let mut allocator = limited(&device, 300);
    let error = allocator.reserve(&peaked(64)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "gpu: over budget: needs 384 bytes, 300 allowed; live at the peak: tensor 2 (b) with 192 bytes, tensor 1 (a) with \
         128 bytes, tensor 0 (x) with 64 bytes"
    );
    assert!(allocator.alloc(&peaked(64), &Bindings::new()).is_err());
    assert!(allocator.reserve_all([&peaked(8), &peaked(64)]).is_err());
    assert_eq!((device.ledger().asked(), allocator.buffer_size(0)), (0, Ok(Bytes(0))));
    // What it takes can be asked all the same.
    assert_eq!(allocator.required(&peaked(64)), Ok(vec![Bytes(384)]));
    allocator.reserve(&peaked(48)).unwrap();
}

#[test]
fn other_options_are_those_of_the_next_reservation_and_keep_plans_and_buffers() {
    let device = device(8);
    let mut allocator = limited(&device, 300);
    allocator.reserve(&peaked(48)).unwrap();
    let size = allocator.buffer_size(0).unwrap();
    assert!(allocator.reserve(&peaked(64)).is_err());
    allocator.set_options(AllocOptions::new().with_budget(0, Bytes(400)));
    assert_eq!((allocator.buffer_size(0), allocator.options().budget(0)), (Ok(size), Some(Bytes(400))));
    assert!(allocator.plan_of(&peaked(48)).is_some());
    allocator.reserve(&peaked(64)).unwrap();
}

#[test]
fn an_error_leaves_plans_buffers_and_contents_as_they_are() {
    let device = device(8);
    let mut allocator = limited(&device, 300);
    let small = peaked(48);
    let x = tensor(&small, "x");
    let allocation = allocator.alloc(&small, &Bindings::new()).unwrap();
    allocation.write(x, &[5i8; 48]).unwrap();
    allocator.alloc(&peaked(64), &Bindings::new()).unwrap_err();
    assert_eq!(allocation.read::<i8>(x).unwrap(), [5; 48]);
    assert!(allocator.plan_of(&small).is_some());
    assert_eq!(allocator.buffer_size(0), Ok(Bytes(6 * 48)));
}

#[test]
fn many_tensors_at_the_peak_are_counted() {
    let names: Vec<String> = (0..9).map(|index| format!("x{index}")).collect();
    let inputs: Vec<String> =
        names.iter().enumerate().map(|(index, name)| format!("{name} = input i8[{}]", 8 * (index + 1))).collect();
    let graph = graph(&format!("{}; y = ?JOIN i8[8] {} !output", inputs.join("; "), names.join(" ")));
    let error = limited(&device(8), 100).reserve(&graph).unwrap_err();
    let AllocError::OverBudget { memory, needed, budget, at_peak, .. } = &error else { panic!("{error}") };
    assert_eq!((memory.as_str(), *needed, *budget), ("gpu", Bytes(368), Bytes(100)));
    assert_eq!(at_peak.0.len(), 10);
    assert!(at_peak.0.windows(2).all(|pair| pair[0].1 >= pair[1].1), "the largest first");
    assert!(error.to_string().ends_with("tensor 4 (x4) with 40 bytes and 5 more"), "{error}");
}

#[test]
fn each_memory_has_a_budget_of_its_own() {
    let [gpu, cpu] = [device(8), device(8)];
    let text = "memory gpu align=8; memory cpu align=8; x = input i8[64] @gpu; a = ?F i8[64] x @gpu
                y = ?F i8[512] a @cpu !output";
    let graph = assigned(text);
    let allocator = |first, second| {
        let options = AllocOptions::new().with_budget(0, Bytes(first)).with_budget(1, Bytes(second));
        GraphAllocator::with_buffers([memory(&gpu), memory(&cpu)]).unwrap().with_options(options)
    };
    allocator(128, 512).reserve((graph.graph(), graph.assignment())).unwrap();
    let error = allocator(128, 511).reserve((graph.graph(), graph.assignment())).unwrap_err();
    assert!(matches!(error, AllocError::OverBudget { needed: Bytes(512), .. }), "{error}");
    let error = allocator(127, 9999).reserve((graph.graph(), graph.assignment())).unwrap_err();
    assert!(matches!(error, AllocError::OverBudget { needed: Bytes(128), .. }), "{error}");
}

#[test]
fn a_budget_holds_under_whichever_mention_of_a_memory_it_was_said() {
    let same = memory(&device(8));
    for (options, expected) in [
        (AllocOptions::new().with_budget(1, Bytes(100)), Some(Bytes(100))),
        (AllocOptions::new().with_budget(0, Bytes(90)).with_budget(1, Bytes(100)), Some(Bytes(90))),
        (AllocOptions::new().with_budget(0, Bytes(100)).with_budget(1, Bytes(90)), Some(Bytes(90))),
    ] {
        let allocator = GraphAllocator::with_buffers([Arc::clone(&same), Arc::clone(&same)]).unwrap();
        let found = match allocator.with_options(options).reserve(&peaked(64)) {
            Err(AllocError::OverBudget { budget, .. }) => Some(budget),
            Ok(()) => None,
            Err(other) => panic!("{other}"),
        };
        assert_eq!(found, expected);
    }
}

#[test]
fn a_budget_for_a_memory_that_is_not_there_is_an_error() {
    for index in [1, 7, usize::MAX] {
        let options = AllocOptions::new().with_budget(index, Bytes(1));
        let error = GraphAllocator::new(&memory(&device(8))).with_options(options).reserve(&peaked(64)).unwrap_err();
        assert_eq!(error, AllocError::BufferIndex { index, buffers: 1 });
    }
}

#[test]
fn chunks_of_earlier_graphs_go_before_a_budget_is_passed() {
    let device = DiscreteDevice::new(spec(8).with_max_size(Bytes(64)));
    let options = |bytes| AllocOptions::new().with_budget(0, Bytes(bytes));
    let mut allocator = GraphAllocator::new(&memory(&device)).with_options(options(150));
    let three = graph("a = input i8[40]; b = input i8[40]; c = input i8[40]; y = ?JOIN i8[8] a b c !output");
    let two = graph("a = input i8[56]; b = input i8[56]; y = ?JOIN i8[8] a b !output");
    allocator.reserve(&three).unwrap();
    assert_eq!(allocator.buffer_size(0), Ok(Bytes(128)));
    // Beside the third chunk of the first graph it would not fit.
    allocator.reserve(&two).unwrap();
    assert_eq!(allocator.buffer_size(0), Ok(Bytes(120)));
    // A plan that fits what is there is asked to fit a smaller budget, too.
    allocator.reserve(&three).unwrap();
    let small = graph("a = input i8[16]; y = ?F i8[16] a !output");
    let mut allocator = allocator.with_options(options(100));
    allocator.reserve(&small).unwrap();
    assert_eq!(allocator.buffer_size(0), Ok(Bytes(32)));
    let error = allocator.reserve(&two).unwrap_err();
    assert!(matches!(error, AllocError::OverBudget { needed: Bytes(120), .. }), "{error}");
    assert_eq!(device.ledger().live(), Bytes(32));
}
