//! Random language models, computed: a text says the same whatever its parts, and takes what its header says.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::sync::Arc;

use steeve_cpu::CpuDevice;
use steeve_device::{
    Align, Bindings, BufferType, Bytes, Device, HostMemory, MemorySpec, SharedBuffer, Usage, is_large_product,
};
use steeve_graph::{Context, InputLimit};
use steeve_models::gguf::{Architecture, GgufHeader, LanguageModel, ModelMemory, ModelTensor, SessionSize, SmallGguf};
use steeve_runtime::TensorAllocator;
use steeve_runtime::sched::Scheduler;
use steeve_testkit::test_devices::TestSystem;

/// A model that computes: weights in the file, or on a device with memory of its own.
struct Session {
    model: LanguageModel,
    context: Context,
    bindings: Bindings,
    scheduler: Scheduler,
    past: u64,
}

impl Session {
    fn new(file: &[u8], size: SessionSize, layers_on_gpu: u64) -> Self {
        let header = GgufHeader::read(file, InputLimit::DEFAULT).unwrap();
        header.check_data(Bytes(file.len() as u64)).unwrap();
        let mut context = Context::new();
        let model = LanguageModel::new(&mut context, &header, size).unwrap();
        let spec = MemorySpec::new("CUDA0").with_align(Align::new(256).unwrap());
        // As steeve-cuda has it: memory that it copies from by itself, and a wish for large products.
        let host: Arc<dyn BufferType> = Arc::new(HostMemory::named("CUDA0_Host").with_align(spec.align));
        let gpu = TestSystem::new().device(spec).with_host_memory(&host).offloading(is_large_product);
        let gpu: Arc<dyn Device> = Arc::new(gpu);
        let cpu: Arc<dyn Device> = Arc::new(CpuDevice::with_threads(1));
        let mapped = SharedBuffer::read_only("model", file.to_vec(), Usage::Weights);
        let mut bindings = Bindings::new();
        for (device, here) in [(&gpu, true), (&cpu, false)] {
            for usage in [Usage::Weights, Usage::Any] {
                let is_here = |tensor: &&ModelTensor| {
                    model.is_on_gpu(tensor, layers_on_gpu) == here && tensor.is_cache() == (usage == Usage::Any)
                };
                let tensors: Vec<&ModelTensor> = model.tensors().iter().filter(is_here).collect();
                if here || usage == Usage::Any {
                    place(&context, &tensors, (device, usage), file, &mut bindings);
                } else {
                    for tensor in tensors {
                        let data = tensor.data.as_ref().unwrap();
                        bindings.bind(tensor.id, &mapped, data.position, data.layout.nbytes()).unwrap();
                    }
                }
            }
        }
        let devices = if layers_on_gpu > 0 { vec![gpu, cpu] } else { vec![cpu] };
        let mut scheduler = Scheduler::new(devices).unwrap();
        let mark = context.mark();
        let steps = model.largest_shapes().map(|shape| {
            let step = model.step(&mut context, shape).unwrap();
            context.rewind(mark).unwrap();
            step
        });
        scheduler.reserve_all(steps.iter().map(|step| (&step.graph, &bindings))).unwrap();
        Self { model, context, bindings, scheduler, past: 0 }
    }

    /// Returns the scores of what comes after these tokens.
    fn feed(&mut self, tokens: &[i32]) -> Vec<f32> {
        let shape = self.model.step_shape(self.past, tokens.len() as u64);
        let mark = self.context.mark();
        let step = self.model.step(&mut self.context, shape).unwrap();
        self.context.rewind(mark).unwrap();
        let job = self.scheduler.alloc(&step.graph, &self.bindings).unwrap();
        job.write(step.tokens, tokens).unwrap();
        let positions: Vec<i32> = (self.past as i32..).take(tokens.len()).collect();
        job.write(step.positions, &positions).unwrap();
        let seen = self.model.visibility(self.past, shape).unwrap();
        if let Some((mask, all)) = step.mask.zip(seen.all) {
            job.write(mask, &all).unwrap();
        }
        if let Some((window, (rows, mask))) = step.window.zip(seen.window) {
            job.write(window.rows, &rows).unwrap();
            job.write(window.mask, &mask).unwrap();
        }
        self.scheduler.compute(&job).unwrap();
        self.past += tokens.len() as u64;
        job.read(step.scores).unwrap()
    }
}

/// Puts tensors into one buffer of a device, weights with their data.
fn place(
    context: &Context,
    tensors: &[&ModelTensor],
    (device, usage): (&Arc<dyn Device>, Usage),
    file: &[u8],
    bindings: &mut Bindings,
) {
    let memory = &device.buffer_types()[0];
    let size = |tensor: &&ModelTensor| {
        memory.alloc_size(context.tensors(), tensor.id).0.next_multiple_of(memory.align().get())
    };
    let buffer = SharedBuffer::allocate(memory, Bytes(tensors.iter().map(size).sum()), usage).unwrap();
    let mut allocator = TensorAllocator::new(&buffer);
    for tensor in tensors {
        let address = allocator.alloc(context, tensor.id).unwrap();
        bindings.bind(tensor.id, &buffer, address.offset, address.size).unwrap();
        if let Some(data) = &tensor.data {
            let start = data.position.0 as usize;
            buffer.write(address.offset, &file[start..][..data.layout.nbytes().0 as usize]).unwrap();
        } else {
            // What was there before must not matter.
            buffer.fill(address.offset, address.size, 0xff).unwrap();
        }
    }
}

/// Returns a text of tokens, none of which is said by a rule.
fn text(count: usize) -> Vec<i32> {
    (0..count as i32).map(|index| (index * index / 3 + 7 * index) % 16).collect()
}

fn assert_near(one: &[f32], other: &[f32], what: &str) {
    assert!(one.iter().all(|score| score.is_finite()), "{what}: {one:?}");
    let largest = one.iter().map(|score| score.abs()).fold(1.0, f32::max);
    let apart = one.iter().zip(other).map(|(one, other)| (one - other).abs()).fold(0.0, f32::max);
    // Keys and values are rounded to 16 bits in every way of computing them, but sums are added up in another order.
    assert!(apart <= 0.01 * largest, "{what}: {apart} apart\n{one:?}\n{other:?}");
}

/// Also where a window's ring is written over several times.
#[test]
fn a_text_says_the_same_in_parts_of_any_length() {
    for architecture in Architecture::ALL {
        let file = SmallGguf::language_model(architecture, 5).to_bytes();
        let text = text(600);
        let mut one_by_one = Session::new(&file, SessionSize::new(640, 1), 0);
        let scores: Vec<Vec<f32>> = text.iter().map(|token| one_by_one.feed(&[*token])).collect();
        let distinct = scores.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!(distinct > 500, "{architecture}: {distinct}");
        for batch in [37usize, 300] {
            let mut session = Session::new(&file, SessionSize::new(640, batch as u64), 0);
            let (mut at, mut lengths) = (0, [batch, 1, batch.div_ceil(2), 3.min(batch)].into_iter().cycle());
            while at < text.len() {
                let end = text.len().min(at + lengths.next().unwrap());
                let said = session.feed(&text[at..end]);
                assert_near(&said, &scores[end - 1], &format!("{architecture}, batch {batch}, {end} tokens"));
                at = end;
            }
        }
    }
}

#[test]
fn layers_on_another_device_say_the_same() {
    for architecture in Architecture::ALL {
        let file = SmallGguf::language_model(architecture, 6).to_bytes();
        let text = text(90);
        let size = SessionSize::new(96, 40);
        let says = |layers| {
            let mut session = Session::new(&file, size, layers);
            text.chunks(40).map(|part| session.feed(part)).last().unwrap()
        };
        let alone = says(0);
        for layers in [1, 2, 99] {
            assert_near(&says(layers), &alone, &format!("{architecture}, {layers} layers"));
        }
    }
}

/// What the header says is what is allocated, to the byte.
#[test]
fn memory_is_what_the_header_says() {
    for architecture in Architecture::ALL {
        let file = SmallGguf::language_model(architecture, 7).to_bytes();
        let header = GgufHeader::read(file.as_slice(), InputLimit::DEFAULT).unwrap();
        for (context, batch, layers) in
            [(1, 1, 0), (96, 16, 0), (512, 512, 0), (300, 7, 0), (96, 16, 1), (512, 300, 99)]
        {
            let size = SessionSize::new(context, batch);
            let planned = ModelMemory::plan(&header, size, layers).unwrap();
            let mut session = Session::new(&file, size, layers);
            session.feed(&text(batch as usize));
            for (device, (id, worker)) in planned.devices.iter().zip(session.scheduler.workers()) {
                assert_eq!(device.name, worker.name());
                assert_eq!(
                    device.compute,
                    session.scheduler.buffer_size(id).unwrap(),
                    "{architecture} {size:?} {layers}"
                );
                let mut placed = [0; 2];
                for tensor in session.model.tensors() {
                    if session.model.is_on_gpu(tensor, layers) != (worker.name() == "CUDA0") {
                        continue;
                    }
                    let address = session.bindings.get(tensor.id).unwrap();
                    let in_file = address.buffer.memory().name() == "model";
                    let align = if in_file { 1 } else { address.buffer.memory().align().get() };
                    placed[usize::from(tensor.is_cache())] += address.size.0.next_multiple_of(align);
                }
                assert_eq!([device.weights.0, device.caches.0], placed, "{architecture} {size:?} {layers}");
            }
        }
    }
}
