//! Bindings, the registry, the ledger, and the two devices that are made up.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::sync::Arc;

use steeve_device::{
    Align, Backend, Bindings, Buffer, BufferType, Bytes, Device, DeviceError, DeviceKind, DiscreteDevice, Graph,
    HostMemory, Locate, MemoryInfo, MemorySpec, NullDevice, Offset, Registry, SharedBuffer, TensorId, Usage,
};
use steeve_graph::{Context, DataType, Id};

fn id(index: usize) -> TensorId {
    TensorId::from_index(index).unwrap()
}

fn host_buffer(size: u64) -> SharedBuffer {
    let memory: Arc<dyn BufferType> = Arc::new(HostMemory::new());
    SharedBuffer::allocate(&memory, Bytes(size), Usage::Any).unwrap()
}

fn make(device: &dyn Device, size: u64) -> Result<Box<dyn Buffer>, DeviceError> {
    device.buffer_types()[0].allocate(Bytes(size))
}

#[test]
fn a_binding_lies_within_its_buffer() {
    let (buffer, mut bindings) = (host_buffer(100), Bindings::new());
    for (offset, size) in [(0, 101), (100, 1), (101, 0), (u64::MAX, 1), (1, u64::MAX)] {
        let error = bindings.bind(id(0), &buffer, Offset(offset), Bytes(size)).unwrap_err();
        let (offset, size, room) = (Offset(offset), Bytes(size), Bytes(100));
        assert_eq!(error, DeviceError::Outside { memory: "host".into(), offset, size, room });
    }
    assert!(bindings.is_empty() && bindings.get(id(0)).is_none() && bindings.buffers().is_empty());
    bindings.bind(id(0), &buffer, Offset(100), Bytes(0)).unwrap();
    bindings.bind(id(0), &buffer, Offset(36), Bytes(64)).unwrap();
    let address = bindings.locate(id(0)).unwrap();
    assert_eq!((address.offset, address.size), (Offset(36), Bytes(64)));
    assert_eq!(address.number(), buffer.address() + 36);
    assert!(bindings.locate(id(1)).is_none() && bindings.locate(id(1000)).is_none());
}

#[test]
fn clones_of_bindings_go_their_own_way() {
    let (a, b) = (host_buffer(64), host_buffer(64));
    let mut one = Bindings::new();
    one.bind(id(3), &a, Offset(0), Bytes(8)).unwrap();
    let mut two = one.clone();
    two.bind(id(3), &b, Offset(8), Bytes(8)).unwrap();
    two.bind(id(9), &b, Offset(0), Bytes(8)).unwrap();
    assert!(one.get(id(3)).unwrap().buffer.is_same(&a) && one.get(id(9)).is_none());
    let listed: Vec<_> = two.iter().map(|(tensor, address)| (tensor.index(), address.offset.0)).collect();
    assert_eq!(listed, [(3, 8), (9, 0)]);
}

#[test]
fn the_later_bindings_win() {
    let (a, b) = (host_buffer(64), host_buffer(64));
    let bound = |pairs: &[(usize, &SharedBuffer)]| {
        let mut bindings = Bindings::new();
        for (index, buffer) in pairs {
            bindings.bind(id(*index), buffer, Offset(0), Bytes(8)).unwrap();
        }
        bindings
    };
    let mut all = bound(&[(0, &a), (5, &a), (6, &a)]);
    let other = bound(&[(5, &b), (8, &b)]);
    all.extend(&other);
    let whose = |index| all.get(id(index)).map(|address| address.buffer.is_same(&b));
    assert_eq!([0, 5, 6, 7, 8].map(whose), [Some(false), Some(true), Some(false), None, Some(true)]);
    assert_eq!(all.buffers().iter().map(|buffer| buffer.is_same(&a)).collect::<Vec<_>>(), [true, false]);
    let mut empty = Bindings::new();
    empty.extend(&other);
    assert_eq!((empty.iter().count(), other.iter().count()), (2, 2));
    all.extend(&Bindings::new());
    assert_eq!(all.iter().count(), 4);
}

/// A null device of some kind.
#[derive(Debug)]
struct NullDeviceOfKind(NullDevice, DeviceKind);

impl NullDeviceOfKind {
    fn device(name: &str, kind: DeviceKind, free: u64) -> Arc<dyn Device> {
        Arc::new(Self(NullDevice::new(MemorySpec::new(name).with_capacity(Bytes(free))), kind))
    }
}

impl Device for NullDeviceOfKind {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn kind(&self) -> DeviceKind {
        self.1
    }

    fn memory(&self) -> MemoryInfo {
        self.0.memory()
    }

    fn buffer_types(&self) -> &[Arc<dyn BufferType>] {
        self.0.buffer_types()
    }

    fn supports(&self, graph: &Graph, node: TensorId) -> Result<(), DeviceError> {
        self.0.supports(graph, node)
    }

    fn backend(&self) -> Result<Box<dyn Backend>, DeviceError> {
        self.0.backend()
    }
}

fn names(registry: &Registry) -> Vec<&str> {
    registry.devices().iter().map(|device| device.name()).collect()
}

#[test]
fn devices_stay_in_the_order_in_which_they_came() {
    let mut registry = Registry::new();
    assert!(registry.best().is_none() && registry.best_of(DeviceKind::Cpu).is_none() && registry.devices().is_empty());
    for name in ["c", "a", "b"] {
        registry.register(NullDeviceOfKind::device(name, DeviceKind::Gpu, 10));
    }
    assert_eq!(names(&registry), ["c", "a", "b"]);
    registry.register(NullDeviceOfKind::device("a", DeviceKind::Cpu, 20));
    assert_eq!(names(&registry), ["c", "a", "b"]);
    assert_eq!(registry.by_name("a").unwrap().kind(), DeviceKind::Cpu);
    assert!(registry.by_name("A").is_none());
    // Of equals the first.
    assert_eq!(registry.best_of(DeviceKind::Gpu).unwrap().name(), "c");
}

#[test]
fn the_best_device_has_the_best_kind_and_then_the_most_free_memory() {
    let mut registry = Registry::new();
    let best = |registry: &Registry| registry.best().map(|device| device.name().to_string());
    registry.register(NullDeviceOfKind::device("plan", DeviceKind::Planning, 1 << 40));
    assert_eq!(best(&registry), None);
    for (name, kind) in [
        ("cpu", DeviceKind::Cpu),
        ("npu", DeviceKind::Accelerator),
        ("igpu", DeviceKind::IntegratedGpu),
        ("gpu", DeviceKind::Gpu),
    ] {
        registry.register(NullDeviceOfKind::device(name, kind, 100));
        assert_eq!(best(&registry).as_deref(), Some(name));
    }
    registry.register(NullDeviceOfKind::device("other", DeviceKind::Gpu, 99));
    assert_eq!(best(&registry).as_deref(), Some("gpu"));
    // Free counts, not total.
    let taken = make(&**registry.by_name("gpu").unwrap(), 2).unwrap();
    assert_eq!(best(&registry).as_deref(), Some("other"));
    drop(taken);
    assert_eq!(best(&registry).as_deref(), Some("gpu"));
}

#[test]
fn the_ledger_knows_who_has_what() {
    let device = DiscreteDevice::new(MemorySpec::new("gpu").with_capacity(Bytes(100)).with_max_size(Bytes(60)));
    let ledger = device.ledger().clone();
    let figures = || (ledger.live().0, ledger.peak().0, ledger.buffers(), ledger.asked());
    assert_eq!(figures(), (0, 0, 0, 0));
    let one = make(&device, 60).unwrap();
    let two = make(&device, 40).unwrap();
    assert_eq!(figures(), (100, 100, 2, 2));
    assert_eq!(device.memory(), MemoryInfo { free: Bytes(0), total: Bytes(100) });
    let none = make(&device, 0).unwrap();
    assert_eq!(make(&device, 1).unwrap_err().to_string(), "gpu: out of memory: requested 1 bytes, 0 bytes available");
    assert_eq!(make(&device, 61).unwrap_err().to_string(), "gpu: buffer too large: expected at most 60 bytes, got 61");
    assert_eq!(figures(), (100, 100, 3, 5));
    drop((one, none));
    assert_eq!(figures(), (40, 100, 1, 5));
    assert_eq!(make(&device, 61).is_err(), make(&device, 60).is_ok());
    drop(two);
    assert_eq!((figures(), device.memory().free), ((0, 100, 0, 7), Bytes(100)));
    let small = make(&device, 1).unwrap();
    assert_eq!((small.size(), figures()), (Bytes(1), (1, 100, 1, 8)));
}

#[test]
fn the_ledger_counts_for_many_threads() {
    let device = NullDevice::new(MemorySpec::new("plan").with_capacity(Bytes(1000)));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for size in 0..500 {
                    let buffer = make(&device, size % 300);
                    assert!(device.ledger().live() <= Bytes(1000));
                    drop(buffer);
                }
            });
        }
    });
    assert_eq!((device.ledger().live(), device.ledger().buffers()), (Bytes(0), 0));
    assert_eq!(device.ledger().asked(), 2000);
    assert!(device.ledger().peak() <= Bytes(1000));
}

#[test]
fn unlimited_memory_still_ends_at_two_to_the_64() {
    let device = NullDevice::new("plan");
    let all = make(&device, u64::MAX).unwrap();
    assert_eq!(make(&device, 1).unwrap_err().to_string(), "plan: out of memory: requested 1 bytes, 0 bytes available");
    assert_eq!(device.memory().free, Bytes(0));
    drop(all);
    assert_eq!(device.memory(), MemoryInfo { free: Bytes(u64::MAX), total: Bytes(u64::MAX) });
}

#[test]
fn allocations_fail_when_told() {
    let device = DiscreteDevice::new("gpu");
    device.faults().fail_after(2);
    let results: Vec<bool> = (0..5).map(|_| make(&device, 8).is_ok()).collect();
    assert_eq!(results, [true, true, false, true, true]);
    device.faults().fail_after(0);
    assert_eq!(make(&device, 8).unwrap_err().to_string(), "gpu: injected fault: allocation 5");
    device.faults().refuse_above(Bytes(10));
    assert!(make(&device, 10).is_ok() && make(&device, 11).is_err() && make(&device, 10).is_ok());
    device.faults().fail_after(0);
    device.faults().clear();
    assert!(make(&device, 11).is_ok());
    assert_eq!((device.ledger().live(), device.ledger().buffers()), (Bytes(0), 0));
    assert_eq!(device.ledger().asked(), 10);
}

#[test]
fn what_the_host_has_not_got_is_an_error_too() {
    let device = DiscreteDevice::new("gpu");
    for size in [1 << 62, 1 << 63, u64::MAX] {
        assert_eq!(make(&device, size).unwrap_err().to_string(), format!("gpu: out of memory: requested {size} bytes"));
    }
    assert_eq!((device.ledger().live(), device.ledger().buffers()), (Bytes(0), 0));
}

#[test]
fn transfers_fail_when_told_and_change_nothing() {
    let device = DiscreteDevice::new("gpu");
    let (mut buffer, mut other) = (make(&device, 8).unwrap(), make(&device, 8).unwrap());
    buffer.write(Offset(0), &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    let mut seen = [0; 8];
    // Each of these is one transfer.
    for after in 0..4 {
        device.faults().fail_transfer_after(after);
        let results = [
            buffer.read(Offset(0), &mut [0]).is_ok(),
            buffer.write(Offset(0), &[1]).is_ok(),
            buffer.copy_within(Offset(0), Offset(0), Bytes(1)).is_ok(),
            buffer.fill(Offset(0), Bytes(1), 1).is_ok(),
        ];
        let wanted: [bool; 4] = std::array::from_fn(|index| index as u64 != after);
        assert_eq!(results, wanted);
    }
    // What moves nothing, or is out of bounds, is none.
    device.faults().fail_transfer_after(0);
    buffer.read(Offset(8), &mut []).unwrap();
    assert!(matches!(buffer.write(Offset(8), &[1]), Err(DeviceError::Outside { .. })));
    let error = buffer.copy_within(Offset(0), Offset(4), Bytes(4)).unwrap_err();
    assert_eq!(error.to_string(), "gpu: injected fault: transfer");
    // A copy between two is a read and a write.
    device.faults().fail_transfer_after(1);
    assert!(other.copy_from(Offset(0), &*buffer, Offset(0), Bytes(8)).is_err());
    device.faults().fail_transfer_after(2);
    other.copy_from(Offset(0), &*buffer, Offset(0), Bytes(8)).unwrap();
    device.faults().clear();
    buffer.read(Offset(0), &mut seen).unwrap();
    assert_eq!(seen, [1, 2, 3, 4, 5, 6, 7, 8]);
    other.read(Offset(0), &mut seen).unwrap();
    assert_eq!(seen, [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn discrete_memory_is_garbage_at_first_and_stands_nowhere_near_the_host() {
    let device = DiscreteDevice::new(MemorySpec::new("gpu").with_align(Align::new(4096).unwrap()));
    let (one, two) = (make(&device, 100).unwrap(), make(&device, 100).unwrap());
    let mut seen = [0; 100];
    one.read(Offset(0), &mut seen).unwrap();
    assert_eq!(seen, [0xA5; 100]);
    assert!(one.address() % 4096 == 0 && one.address().abs_diff(two.address()) >= 1 << 48 && one.address() >= 1 << 48);
    assert!(!device.buffer_types()[0].is_host());
}

#[test]
fn init_hooks_see_tensors_until_they_are_reset() {
    let mut context = Context::new();
    let x = context.input(DataType::F32, &[4]).unwrap();
    let plain = DiscreteDevice::new("gpu");
    assert!(make(&plain, 16).unwrap().init_hook().is_none());
    assert!(plain.seen().is_empty());
    let device = DiscreteDevice::new("gpu");
    device.faults().fail_after(1);
    // What was told before is still told.
    let device = device.with_init_hook();
    let mut buffer = make(&device, 16).unwrap();
    assert!(make(&device, 16).is_err());
    let hook = buffer.init_hook().unwrap();
    hook.init_tensor(context.tensors(), x, Offset(0)).unwrap();
    hook.init_tensor(context.tensors(), x, Offset(4)).unwrap();
    assert_eq!(device.seen(), [(x, Offset(0)), (x, Offset(4))]);
    buffer.reset().unwrap();
    assert!(device.seen().is_empty());
}

#[test]
fn null_buffers_have_sizes_and_nothing_else() {
    let device = NullDevice::new(MemorySpec::new("plan").with_max_size(Bytes(1 << 50)));
    let mut buffer = make(&device, 1 << 50).unwrap();
    assert_eq!((buffer.size(), buffer.address()), (Bytes(1 << 50), 0));
    let error = buffer.write(Offset(1 << 49), &[1]).unwrap_err();
    assert_eq!(error.to_string(), "plan: no bytes to read or write: the memory only counts them");
    buffer.write(Offset(1 << 50), &[]).unwrap();
    assert!(matches!(buffer.write(Offset(1 << 50), &[1]), Err(DeviceError::Outside { .. })));
    // An end that is passed is told first, whichever it is.
    for (from, to) in [(0, 1), (1, 0)] {
        let copy = buffer.copy_within(Offset(from), Offset(to), Bytes(1 << 50));
        assert!(matches!(copy, Err(DeviceError::Outside { .. })), "{copy:?}");
    }
    assert!(make(&device, (1 << 50) + 1).is_err());
    let mut context = Context::new();
    let x = context.input(DataType::F32, &[4]).unwrap();
    let y = context.neg(x).unwrap();
    context.set_name(y, "y").unwrap();
    let graph = Graph::from_outputs(&context, &[y]).unwrap();
    assert_eq!(
        device.supports(&graph, y).unwrap_err().to_string(),
        "plan: unsupported node: tensor 1 (y), neg of (f32[4]) to f32[4]: this device computes nothing"
    );
    assert_eq!(device.backend().unwrap_err().to_string(), "plan: this device computes nothing");
}

#[test]
fn figures_of_a_memory_can_be_taken_from_another() {
    let align = |bytes| Align::new(bytes).unwrap();
    let spec = MemorySpec::new("gpu").with_align(align(256)).with_max_size(Bytes(1 << 20)).with_hold(3);
    let device = DiscreteDevice::new(spec.clone().with_padding(align(512)).with_capacity(Bytes(1 << 21)));
    let memory = &device.buffer_types()[0];
    assert_eq!(MemorySpec::like(&**memory), spec);
    let mut context = Context::new();
    let x = context.input(DataType::F32, &[100]).unwrap();
    assert_eq!(memory.alloc_size(context.tensors(), x), Bytes(512));
    let host: Arc<dyn BufferType> = Arc::new(HostMemory::new());
    assert_eq!(host.alloc_size(context.tensors(), x), Bytes(400));
    assert_eq!(memory.hold(), 3);
    // A tensor of another context has no bytes.
    assert_eq!(memory.alloc_size(Context::new().tensors(), x), Bytes(0));
}
