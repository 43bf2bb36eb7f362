//! A small network: weights in memory of their own, activations in memory that is planned and shared.
//!
//!     cargo run --release -p steeve --example quickstart

use steeve::prelude::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cpu = CpuBackend::default();

    // Weights outlive every graph.
    let mut context = Context::new();
    let w1 = context.external(DataType::F32, &[784, 128])?;
    let w2 = context.external(DataType::F32, &[128, 10])?;
    let weights = allocate_context_on(&mut context, &cpu)?;

    // The graph of the worst case: a batch of 64.
    let mark = context.mark();
    let (images, scores, worst) = network(&mut context, w1, w2, 64)?;
    let mut allocator = GraphAllocator::new(&cpu.buffer_type());
    println!("{} bytes are needed, and nothing is allocated yet", allocator.required(&worst)?[0]);
    allocator.reserve(&worst)?;

    let run = allocator.alloc(&worst, &weights)?;
    run.write(w1, &pattern(784 * 128))?;
    run.write(w2, &pattern(128 * 10))?;
    run.write(images, &pattern(784 * 64))?;
    run.compute(&cpu)?;
    println!("the first scores of 64 images: {:.4?}", &run.read::<f32>(scores)?[..4]);
    drop(run);

    // A smaller graph runs in the same memory, by the same plan.
    drop(worst);
    context.rewind(mark)?;
    let (images, scores, one) = network(&mut context, w1, w2, 1)?;
    let run = allocator.alloc(&one, &weights)?;
    run.write(images, &pattern(784))?;
    run.compute(&cpu)?;
    println!("the first scores of one image: {:.4?}", &run.read::<f32>(scores)?[..4]);
    println!("{} bytes are allocated", allocator.buffer_size(0)?);
    Ok(())
}

fn network(
    context: &mut Context,
    w1: TensorId,
    w2: TensorId,
    batch: u64,
) -> Result<(TensorId, TensorId, Graph), Box<dyn std::error::Error>> {
    let images = context.input(DataType::F32, &[784, batch])?;
    let hidden = context.mul_mat(w1, images)?;
    let hidden = context.relu(hidden)?;
    let logits = context.mul_mat(w2, hidden)?;
    let scores = context.soft_max(logits, None, SoftMax::default())?;
    context.set_output(scores)?;
    Ok((images, scores, Graph::from_outputs(context, &[scores])?))
}

/// Numbers that look like something.
fn pattern(count: usize) -> Vec<f32> {
    (0..count).map(|index| ((index * 37 % 101) as f32 - 50.0) / 400.0).collect()
}
