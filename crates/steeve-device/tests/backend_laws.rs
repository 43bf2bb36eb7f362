//! The suite for backends: it passes what is right, and finds out what is wrong, for the right reason.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod reference;

use std::sync::Arc;

use reference::{BackendFault, Execution, ReferenceBackend};
use steeve_device::conformance::{Report, check_backend, check_custom_op};
use steeve_device::{Align, BufferType, Bytes, Device, DiscreteDevice, HostMemory, MemorySpec};
use steeve_graph::{CustomOp, DataType, Glu, Op, Unary};

fn failed_laws(report: &Report) -> Vec<&str> {
    let mut laws: Vec<&str> = report.failures.iter().map(|failure| failure.law.as_str()).collect();
    laws.dedup();
    laws
}

/// Checks that exactly these laws fail. A law that ends with a star matches all that start like it.
#[track_caller]
fn catches(fault: BackendFault, execution: Execution, laws: &[&str]) {
    let report = check_backend(&ReferenceBackend::new(fault, execution));
    assert!(!report.is_ok(), "{fault:?} was not found out");
    let fits = |failed: &str, law: &str| law.strip_suffix('*').map_or(failed == law, |start| failed.starts_with(start));
    for law in laws {
        assert!(failed_laws(&report).iter().any(|failed| fits(failed, law)), "{fault:?} keeps {law:?}\n{report}");
    }
    for failed in failed_laws(&report) {
        assert!(laws.iter().any(|law| fits(failed, law)), "{fault:?} breaks {failed:?} too\n{report}");
    }
}

#[test]
fn the_reference_conforms() {
    for execution in [Execution::Eager, Execution::Lazy] {
        let report = check_backend(&ReferenceBackend::new(BackendFault::None, execution));
        report.assert();
        // It supports all there is, but nothing but f32.
        for skipped in &report.skipped {
            assert!(!skipped.law.contains("f32"), "{skipped:?}");
        }
        let plain = Op::PLAIN.iter().map(|op| (*op, op.name()));
        let unary = Unary::ALL.iter().map(|kind| (Op::Unary(*kind), kind.name()));
        let glu = Glu::ALL.iter().map(|kind| (Op::Glu(*kind), kind.name()));
        let mut slots = 0;
        for (op, name) in plain.chain(unary).chain(glu) {
            for slot in (0..16).filter(|slot| op.overwrites_slot(*slot)) {
                let law = format!("{} f32 over source {slot}", name.to_ascii_lowercase());
                assert!(report.has_checked(&law), "{law:?} was not checked\n{report:#}");
                slots += 1;
            }
        }
        assert!(slots > 60, "only {slots} slots");
    }
}

/// Checks an own operation, of which the reference has no kernel.
fn check_unknown(fault: BackendFault) -> Report {
    let op = CustomOp::elementwise("MY_RELU");
    check_custom_op(&ReferenceBackend::new(fault, Execution::Eager), &op, |context| {
        let x = context.input(DataType::F32, &[8])?;
        context.custom(&op, &[x], &[])
    })
}

#[test]
fn an_own_operation_that_is_not_supported_and_can_be_prepared_is_a_failure() {
    assert!(failed_laws(&check_unknown(BackendFault::None)).is_empty());
    let report = check_unknown(BackendFault::PreparesUnknown);
    assert_eq!(failed_laws(&report), ["what it does not support it does not prepare"], "{report:#}");
}

#[test]
fn a_report_without_laws_is_refused_with_what_was_skipped() {
    let report = check_unknown(BackendFault::None);
    let panic = std::panic::catch_unwind(|| report.assert()).unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(
        text.contains("0 laws checked") && text.contains("skipped: MY_RELU apart: ") && text.contains("who knows?")
    );
}

#[test]
fn it_conforms_in_other_memories() {
    let spec = MemorySpec::new("far").with_align(Align::new(256).unwrap()).with_padding(Align::new(64).unwrap());
    let far = DiscreteDevice::new(spec).with_init_hook();
    let wide: Arc<dyn BufferType> = Arc::new(HostMemory::new().with_align(Align::ONE));
    for memory in [Arc::clone(&far.buffer_types()[0]), wide] {
        check_backend(&ReferenceBackend::on(memory, BackendFault::None, Execution::Lazy)).assert();
    }
    assert_eq!((far.ledger().live(), far.ledger().buffers()), (Bytes(0), 0));
    assert!(far.ledger().asked() > 1000, "the suite hardly ran");
}

#[test]
fn what_does_not_fit_into_a_buffer_is_skipped() {
    let small = DiscreteDevice::new(MemorySpec::new("small").with_max_size(Bytes(4096)));
    let report = check_backend(&ReferenceBackend::on(
        Arc::clone(&small.buffer_types()[0]),
        BackendFault::None,
        Execution::Eager,
    ));
    report.assert();
    let skipped = report.skipped.iter().find(|it| it.law == "add f32 over source 0").unwrap();
    let why = "add of (f32[1031,13], f32[1031,13]) to f32[1031,13]: the buffers of small have at most 4096 bytes";
    assert_eq!(skipped.why, why);
    assert!(report.has_checked("add f32 over source 0"));
}

#[test]
fn refusals_are_listed_with_their_reason() {
    let report = check_backend(&ReferenceBackend::new(BackendFault::None, Execution::Eager));
    let skipped = report.skipped.iter().find(|it| it.law == "norm f16 over source 0").unwrap();
    assert!(
        skipped.why.starts_with("reference: unsupported node: tensor 1 (result), norm of (f16["),
        "{}",
        skipped.why
    );
    assert!(skipped.why.ends_with("only f32 is known here"), "{}", skipped.why);
    assert!(!report.has_checked("norm f16 over source 0"));
}

#[test]
fn what_a_backend_does_not_support_is_skipped_with_a_line() {
    let report = check_backend(&ReferenceBackend::new(BackendFault::SupportsNothing, Execution::Eager));
    report.assert();
    assert!(report.has_checked("an unknown operation is refused by name"));
    for (law, why) in [
        ("nodes run in order", "none of scale, sqr, add and mul is supported for f32"),
        ("it runs an operation of the in-place table", "it supports none of them"),
    ] {
        assert!(report.skipped.iter().any(|it| it.law == law && it.why == why), "{law}\n{report}");
        assert!(!report.has_checked(law));
    }
}

#[test]
fn a_source_that_is_ignored_is_found_out() {
    let report = check_backend(&ReferenceBackend::new(BackendFault::IgnoresSource(1), Execution::Eager));
    for op in ["add", "sub", "mul", "div", "add1", "add_id", "silu_back", "swiglu", "soft_max", "rope", "rms_norm_back"]
    {
        let law = format!("{op} f32 apart");
        assert!(failed_laws(&report).contains(&&*law), "{law}\n{report}");
    }
    assert!(!failed_laws(&report).contains(&"neg f32 apart"));
    let report = check_backend(&ReferenceBackend::new(BackendFault::IgnoresSource(2), Execution::Eager));
    assert_eq!(
        failed_laws(&report),
        ["add_id f32 apart", "soft_max f32 apart", "rope f32 apart", "rope_back f32 apart"]
    );
    let report = check_backend(&ReferenceBackend::new(BackendFault::IgnoresSource(0), Execution::Eager));
    assert!(failed_laws(&report).contains(&"neg f32 apart"), "{report}");
    // A fill reads nothing, so nothing is missed.
    assert!(!failed_laws(&report).contains(&"fill f32 apart"));
}

#[test]
fn a_write_before_the_read_is_found_out_in_place() {
    let report = check_backend(&ReferenceBackend::new(BackendFault::ClearsFirst, Execution::Eager));
    let laws = failed_laws(&report);
    for law in ["add f32 over source 0", "add f32 over source 1", "norm f32 over source 0", "rope f32 over source 0"] {
        assert!(laws.contains(&law), "{law}\n{report}");
    }
    assert!(laws.iter().all(|law| law.contains("over source") || *law == "nodes run in order"), "{report}");
}

#[test]
fn a_kernel_that_is_safe_on_one_source_only_is_found_out_on_the_other() {
    let report = check_backend(&ReferenceBackend::new(BackendFault::CopiesFirst, Execution::Eager));
    let laws = failed_laws(&report);
    for op in ["add", "sub", "mul", "div", "silu_back", "reglu", "swiglu", "geglu_erf", "rms_norm_back"] {
        assert!(laws.contains(&&*format!("{op} f32 over source 1")), "{op}\n{report}");
    }
    assert!(laws.iter().all(|law| law.ends_with("over source 1")), "{report}");
}

#[test]
fn rereading_in_place_is_found_out() {
    catches(BackendFault::NormReadsAgain, Execution::Eager, &["norm f32 over source 0"]);
    catches(BackendFault::RopeReadsAgain, Execution::Eager, &["rope f32 over source 0"]);
}

#[test]
fn one_element_too_few_or_too_many_is_found_out() {
    let laws = |fault| {
        let report = check_backend(&ReferenceBackend::new(fault, Execution::Eager));
        failed_laws(&report).into_iter().map(String::from).collect::<Vec<_>>()
    };
    for fault in [
        BackendFault::ForgetsLastElement,
        BackendFault::WritesOneMore,
        BackendFault::ReadsOneFurther,
        BackendFault::Accumulates,
    ] {
        let laws = laws(fault);
        for op in ["neg", "add", "swiglu", "sqr", "norm", "soft_max", "rope", "group_norm", "add_id", "clamp"] {
            assert!(laws.contains(&format!("{op} f32 apart")), "{fault:?}: {op}\n{laws:?}");
        }
    }
    let shifted = laws(BackendFault::ShiftsByOne);
    for op in ["neg", "add", "swiglu", "sqr", "clamp", "norm"] {
        assert!(shifted.contains(&format!("{op} f32 apart")), "{op}\n{shifted:?}");
    }
}

#[test]
fn a_source_that_is_written_is_found_out() {
    let report = check_backend(&ReferenceBackend::new(BackendFault::ScribblesOnSource, Execution::Eager));
    assert!(failed_laws(&report).contains(&"add f32 apart"), "{report}");
    let add = report.failures.iter().find(|failure| failure.law == "add f32 apart").unwrap();
    assert!(add.what.contains("byte 0 of tensor 1 (leaf 1), has become 0x00"), "{}", add.what);
    assert!(!failed_laws(&report).contains(&"neg f32 apart"));
}

#[test]
fn disorder_is_found_out() {
    let order =
        ["nodes run in order", "what runs twice gives the same twice", "nodes read what is there when they run"];
    let report = check_backend(&ReferenceBackend::new(BackendFault::RunsBackwards, Execution::Eager));
    assert!(failed_laws(&report).contains(&order[0]), "{report}");
    catches(
        BackendFault::RunsOnce,
        Execution::Eager,
        &[order[1], order[2], "events happen, and can be waited for", "no run uses *"],
    );
    catches(BackendFault::RunsAll, Execution::Eager, &["some of the nodes can run alone"]);
    let report = check_backend(&ReferenceBackend::new(BackendFault::ReadsEarly, Execution::Eager));
    assert!(failed_laws(&report).contains(&order[2]), "{report}");
}

#[test]
fn contradictions_are_found_out() {
    let report = check_backend(&ReferenceBackend::new(BackendFault::PromisesTooMuch, Execution::Eager));
    assert!(failed_laws(&report).contains(&"add f16 apart"), "{report}");
    catches(BackendFault::PreparesTooMuch, Execution::Eager, &["what it does not support it does not prepare"]);
    catches(BackendFault::PreparesUnknown, Execution::Eager, &["an unknown operation is refused by name"]);
}

#[test]
fn tensors_without_memory_must_be_named() {
    let law = ["a tensor without memory is an error that names it"];
    catches(BackendFault::IgnoresUnplaced, Execution::Eager, &law);
    catches(BackendFault::NamesAnother, Execution::Eager, &law);
}

#[test]
fn events_that_mean_nothing_are_found_out() {
    let law = ["events happen, and can be waited for"];
    catches(BackendFault::RecordsEarly, Execution::Lazy, &law);
    catches(BackendFault::ForgetsForeignEvents, Execution::Eager, &law);
}

#[test]
fn runs_in_memory_of_others_are_found_out() {
    catches(BackendFault::IgnoresBorrows, Execution::Eager, &["no run uses a buffer that is borrowed"]);
    catches(BackendFault::IgnoresRelease, Execution::Lazy, &["no run uses a buffer that was released"]);
}

#[test]
fn wrong_transfers_are_found_out() {
    catches(BackendFault::CopiesFromStart, Execution::Eager, &["what is written can be read and copied"]);
    let report = check_backend(&ReferenceBackend::new(BackendFault::WritesNothing, Execution::Eager));
    assert!(failed_laws(&report).contains(&"what is written can be read and copied"), "{report}");
}
