//! GGUF files: read, refused with a reason, and turned into graphs.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::error::Error;

use steeve_graph::{Bytes, Context, DataType, InputLimit};
use steeve_models::gguf::{
    Architecture, GgufError, GgufHeader, GgufValue, LanguageModel, ModelConfig, ModelMemory, SessionSize, SmallGguf,
    StepShape,
};

fn read(bytes: &[u8]) -> Result<GgufHeader, GgufError> {
    GgufHeader::read(bytes, InputLimit::DEFAULT)
}

/// Returns an error with its causes.
fn chain(error: &GgufError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text += &format!(": {source}");
        cause = source.source();
    }
    text
}

/// Returns why a model can't be planned.
fn refusal(file: &SmallGguf) -> String {
    let header = read(&file.to_bytes()).unwrap();
    chain(&ModelMemory::plan(&header, SessionSize::new(64, 16), 0).unwrap_err())
}

fn some_values() -> SmallGguf {
    let mut file = SmallGguf::new();
    file.number("n", 7);
    file.float("f", 0.5);
    file.text("s", "text");
    file.texts("t", &["", "yz", "é"]);
    file.numbers("a", &[3, u32::MAX]);
    file.value("i", 3, &(-2i16).to_le_bytes());
    file.value("b", 7, &[1]);
    file.value("w", 10, &u64::MAX.to_le_bytes());
    file.tensor("one", DataType::F32, &[3], &[1; 12]);
    file.tensor("two", DataType::Q4_0, &[64, 2], &[2; 72]);
    file
}

#[test]
fn values_and_tensors_are_those_of_the_file() {
    let bytes = some_values().to_bytes();
    let header = read(&bytes).unwrap();
    let value = |key: &str| header.value(key).unwrap();
    assert_eq!((value("n").as_u64(), value("f").as_f32(), value("s").as_text()), (Some(7), Some(0.5), Some("text")));
    assert_eq!((value("i"), value("b")), (&GgufValue::Signed(-2), &GgufValue::Bool(true)));
    assert_eq!(value("w").as_u64(), Some(u64::MAX));
    let GgufValue::Texts(texts) = value("t") else { panic!("{}", value("t")) };
    assert_eq!(
        (0..4).map(|index| texts.get(index)).collect::<Vec<_>>(),
        [Some(&b""[..]), Some(b"yz"), Some("é".as_bytes()), None]
    );
    let GgufValue::Numbers(numbers) = value("a") else { panic!("{}", value("a")) };
    assert_eq!(numbers.iter().map(|number| number.as_u64().unwrap()).collect::<Vec<_>>(), [3, u64::from(u32::MAX)]);
    // Where a tensor is said to be, its data are.
    for (tensor, byte) in header.tensors().iter().zip([1u8, 2]) {
        let (start, length) = (tensor.position.0 as usize, tensor.layout.nbytes().0 as usize);
        assert!(start.is_multiple_of(32) && bytes[start..start + length].iter().all(|it| *it == byte));
    }
    assert_eq!(header.weights(), Bytes(12 + 72));
    assert_eq!((header.version(), header.values().len()), (3, 8));
}

#[test]
fn a_header_alone_has_sizes_and_a_file_without_its_data_is_told() {
    let file = some_values();
    let (header, whole) = (file.header_bytes(), file.to_bytes());
    let read = read(&header).unwrap();
    assert_eq!(read.tensors().len(), 2);
    let end = read.tensors()[1].position.0 + 72;
    assert!(read.check_data(Bytes(end)).is_ok() && read.check_data(Bytes(whole.len() as u64)).is_ok());
    let error = read.check_data(Bytes(end - 1)).unwrap_err().to_string();
    assert!(error.contains("\"two\"") && error.contains(&format!("the file has {} bytes", end - 1)), "{error}");
}

#[test]
fn whatever_is_cut_is_truncated_and_says_where() {
    let whole = some_values().header_bytes();
    for end in 4..whole.len() {
        let error = read(&whole[..end]).unwrap_err();
        assert!(matches!(error, GgufError::Truncated { at, .. } if at == end as u64), "{end}: {error}");
    }
    assert!(matches!(read(b"GGU"), Err(GgufError::NotGguf { .. })));
    // A version before the one that counts in 64 bits, one that is not there yet, and another byte order.
    for (version, wanted) in [(1u32, "got 1"), (4, "got 4"), (3u32.swap_bytes(), "big-endian")] {
        let mut other = whole.clone();
        other[4..8].copy_from_slice(&version.to_le_bytes());
        let error = read(&other).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
    let limited = GgufHeader::read(whole.as_slice(), InputLimit::new(Bytes(whole.len() as u64 - 1)));
    assert!(matches!(limited, Err(GgufError::TooLarge(_))));
    assert!(GgufHeader::read(whole.as_slice(), InputLimit::new(Bytes(whole.len() as u64))).is_ok());
}

/// Counts that no file has bytes for: nothing is made room for before it has been read.
#[test]
fn a_count_without_bytes_behind_it_takes_no_memory() {
    let mut many = SmallGguf::new().to_bytes();
    for place in [8, 16] {
        let mut file = many.clone();
        file[place..place + 8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(matches!(read(&file), Err(GgufError::Truncated { .. })), "{place}");
    }
    many.truncate(24);
    many[16] = 1;
    for kind in [0u32, 4, 8, 12] {
        for count in [1 << 40, u64::MAX / 8, u64::MAX] {
            let mut file = many.clone();
            file.extend([1u64.to_le_bytes().as_slice(), b"k", &9u32.to_le_bytes(), &kind.to_le_bytes()].concat());
            file.extend(count.to_le_bytes());
            let error = read(&file).unwrap_err();
            let told = matches!(error, GgufError::Truncated { .. } | GgufError::TooLarge(_) | GgufError::Count { .. });
            assert!(told, "{kind} {count}: {error}");
        }
    }
}

#[test]
fn what_makes_no_sense_is_named() {
    let refused = |change: &dyn Fn(&mut SmallGguf), words: &[&str]| {
        let mut file = some_values();
        change(&mut file);
        let error = chain(&read(&file.to_bytes()).unwrap_err());
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    };
    refused(&|file| file.number("n", 8), &["value \"n\"", "twice"]);
    refused(&|file| file.tensor("one", DataType::F32, &[1], &[0; 4]), &["tensor \"one\"", "twice"]);
    refused(&|file| file.number("general.alignment", 24), &["general.alignment", "power of two", "24"]);
    refused(&|file| file.text("general.alignment", "x"), &["general.alignment", "power of two", "\"x\""]);
    // The offsets of the small file are multiples of 32 only.
    refused(&|file| file.number("general.alignment", 128), &["tensor \"two\"", "misaligned", "128", "32"]);
    refused(&|file| file.value("k", 13, &[]), &["value \"k\"", "unknown type 13"]);
    refused(&|file| file.value("k", 9, &[9, 0, 0, 0]), &["value \"k\"", "unknown type 9"]);
    refused(&|file| file.tensor("odd", DataType::Q4_0, &[33], &[]), &["tensor \"odd\"", "multiple of 32", "33"]);
    refused(&|file| file.tensor("five", DataType::F32, &[1; 5], &[]), &["tensor \"five\"", "dimensions", "5"]);
    refused(&|file| file.tensor("vast", DataType::F32, &[1 << 40, 1 << 40], &[]), &["tensor \"vast\""]);
    refused(&|file| file.value("k", 8, &[&2u64.to_le_bytes(), &[0xff, 0xfe][..]].concat()), &["\"k\"", "not UTF-8"]);
}

#[test]
fn every_family_becomes_a_graph_of_which_the_peak_grows_with_the_batch() {
    for architecture in Architecture::ALL {
        let header = read(&SmallGguf::language_model(architecture, 1).header_bytes()).unwrap();
        let mut last = Bytes(0);
        for batch in [1, 2, 16, 64] {
            let memory = ModelMemory::plan(&header, SessionSize::new(64, batch), 0).unwrap();
            let [device] = &memory.devices[..] else { panic!("{:?}", memory.devices) };
            assert!(device.compute > last, "{architecture} {batch}");
            last = device.compute;
        }
    }
}

#[test]
fn the_caches_of_windows_have_room_for_window_and_batch_and_no_more_than_the_context() {
    let header = read(&SmallGguf::language_model(Architecture::Gemma3, 1).header_bytes()).unwrap();
    let rows = |context, batch| {
        let size = SessionSize::new(context, batch);
        LanguageModel::new(&mut Context::new(), &header, size).unwrap().window_rows().unwrap()
    };
    assert_eq!(rows(4096, 16), 256);
    assert_eq!(rows(4096, 233), 256);
    assert_eq!(rows(4096, 234), 512);
    assert_eq!(rows(100, 16), 100);
    assert_eq!(rows(1, 1), 1);
}

#[test]
fn a_layer_is_on_the_gpu_as_a_whole_and_all_together_with_what_they_share() {
    for architecture in Architecture::ALL {
        let header = read(&SmallGguf::language_model(architecture, 1).header_bytes()).unwrap();
        let size = SessionSize::new(64, 16);
        let layers =
            ModelMemory::plan(&header, size, 0).map(|_| ()).and(LanguageModel::new(&mut Context::new(), &header, size));
        let layers = layers.unwrap().config().layers;
        let mut last = Bytes(0);
        for on_gpu in 1..=layers + 1 {
            let memory = ModelMemory::plan(&header, size, on_gpu).unwrap();
            let [gpu, cpu] = &memory.devices[..] else { panic!("{:?}", memory.devices) };
            assert!(gpu.weights > last || on_gpu > layers, "{architecture} {on_gpu}");
            assert_eq!(cpu.weights == Bytes(0), on_gpu >= layers);
            assert_eq!(cpu.caches == Bytes(0), on_gpu >= layers);
            last = gpu.weights;
        }
    }
}

/// Returns the error for a value with this key that is cut off.
fn refusal_of_key(key: &str) -> String {
    let mut file = SmallGguf::new();
    file.text(key, "text");
    let bytes = file.header_bytes();
    chain(&read(&bytes[..24 + 8 + key.len() + 4 + 8 + 2]).unwrap_err())
}

#[test]
fn a_model_that_would_compute_something_else_is_refused() {
    let refused = |architecture: Architecture, change: &dyn Fn(&mut SmallGguf), words: &[&str]| {
        let mut file = SmallGguf::language_model(architecture, 1);
        change(&mut file);
        let error = refusal(&file);
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    };
    let llama = |change: &dyn Fn(&mut SmallGguf), words: &[&str]| refused(Architecture::Llama, change, words);
    let extra = |name: &'static str| move |file: &mut SmallGguf| file.tensor(name, DataType::F32, &[1], &[0; 4]);
    llama(&extra("blk.0.attn_sinks.weight"), &["blk.0.attn_sinks.weight", "not known", "llama"]);
    llama(&extra("blk.2.attn_norm.weight"), &["blk.2.attn_norm.weight", "not known"]);
    llama(&|file| file.remove_tensor("blk.1.ffn_up.weight"), &["blk.1.ffn_up.weight", "missing"]);
    llama(&extra("rope_freqs.weight"), &["rope_freqs.weight", "expected [8]", "got [1]"]);
    llama(&extra("blk.0.attn_q.bias"), &["blk.0.attn_q.bias", "expected [64]", "got [1]"]);
    llama(&|file| file.remove_value("llama.block_count"), &["llama.block_count", "missing"]);
    let replaced = |key: &'static str, number| {
        move |file: &mut SmallGguf| {
            file.remove_value(key);
            file.number(key, number);
        }
    };
    llama(&replaced("llama.attention.head_count", 0), &["llama.attention.head_count", "above 0", "got 0"]);
    llama(&replaced("llama.attention.head_count_kv", 3), &["llama.attention.head_count_kv", "divisor", "got 3"]);
    for key in ["llama.attention.key_length", "llama.attention.value_length"] {
        llama(&replaced(key, 0), &[key, "above 0", "got 0"]);
    }
    // The width of 32 gives each head nothing.
    let many_heads = |file: &mut SmallGguf| {
        file.remove_value("llama.attention.key_length");
        replaced("llama.attention.head_count", 64)(file);
    };
    llama(&many_heads, &["llama.attention.key_length", "above 0", "got none"]);
    let no_share = |file: &mut SmallGguf| {
        file.remove_value("qwen3moe.expert_feed_forward_length");
        replaced("qwen3moe.feed_forward_length", 1)(file);
    };
    refused(Architecture::Qwen3Moe, &no_share, &["qwen3moe.feed_forward_length", "experts", "got 1"]);
    let no_words = |file: &mut SmallGguf| {
        file.remove_tensor("token_embd.weight");
        file.tensor("token_embd.weight", DataType::F32, &[32, 0], &[]);
    };
    llama(&no_words, &["rows of the embedding", "got 0"]);
    let long = "k".repeat(1 << 16);
    assert!(refusal_of_key(&long).len() < 1000);
    llama(&replaced("llama.embedding_length", 64), &["token_embd.weight", "expected [64, 16]", "got [32, 16]"]);
    llama(&|file| file.number("llama.rope.dimension_count", 15), &["llama.rope.dimension_count", "even", "15"]);
    llama(&|file| file.text("llama.rope.scaling.type", "longrope"), &["llama.rope.scaling.type", "longrope"]);
    llama(&|file| file.float("llama.rope.scaling.factor", -2.0), &["llama.rope.scaling.factor", "above 0", "-2"]);
    let epsilon = "llama.attention.layer_norm_rms_epsilon";
    llama(&|file| file.remove_value(epsilon), &[epsilon, "missing"]);
    llama(&extra("blk.1.ffn_up.bias"), &["blk.1.ffn_up.bias", "expected [64]", "got [1]"]);
    // Parts of one family are not taken from another.
    refused(Architecture::Qwen2, &extra("rope_freqs.weight"), &["rope_freqs.weight", "not known", "qwen2"]);
    refused(Architecture::Qwen3, &extra("blk.1.ffn_up.bias"), &["blk.1.ffn_up.bias", "not known", "qwen3"]);
    llama(&|file| file.number("split.count", 3), &["3 files"]);
    llama(&|file| file.numbers("llama.rope.dimension_count", &[16, 8]), &["the same for all layers"]);
    let other = |file: &mut SmallGguf| {
        file.remove_value("general.architecture");
        file.text("general.architecture", "mamba");
    };
    llama(&other, &["mamba", "llama, qwen2, qwen3, qwen3moe or gemma3"]);
    let vector = |file: &mut SmallGguf| {
        file.remove_tensor("output_norm.weight");
        file.tensor("output_norm.weight", DataType::F16, &[32], &[0; 64]);
    };
    llama(&vector, &["output_norm.weight", "expected f32, got f16"]);
    let experts = replaced("qwen3moe.expert_used_count", 5);
    refused(Architecture::Qwen3Moe, &experts, &["expert_used_count", "at most expert_count", "got 5"]);
    refused(Architecture::Gemma3, &extra("output.bias"), &["output.bias", "not known"]);
}

/// What a file does not say is what llama.cpp takes it for.
#[test]
fn what_a_file_does_not_say_is_as_usual() {
    let config = |architecture: Architecture, change: &dyn Fn(&mut SmallGguf)| {
        let mut file = SmallGguf::language_model(architecture, 1);
        change(&mut file);
        ModelConfig::of(&read(&file.to_bytes()).unwrap()).unwrap()
    };
    for architecture in Architecture::ALL {
        assert_eq!(config(architecture, &|_| ()).rope.freq_base, 1e4, "{architecture}");
    }
    // No family of these has a scale of its own.
    let scaled = |file: &mut SmallGguf| file.float("llama.attention.scale", 7.0);
    assert_eq!(config(Architecture::Llama, &scaled), config(Architecture::Llama, &|_| ()));
    // The experts that a token uses share the length of the whole: 64 among 2.
    let silent = |file: &mut SmallGguf| file.remove_value("qwen3moe.expert_feed_forward_length");
    assert_eq!(config(Architecture::Qwen3Moe, &silent).hidden, 32);
}

/// Biases that a family may have are weights like all others, and change what is said.
#[test]
fn biases_of_a_family_are_taken() {
    for (architecture, name, length) in [
        (Architecture::Llama, "blk.1.ffn_gate.bias", 64),
        (Architecture::Llama, "blk.0.ffn_up.bias", 64),
        (Architecture::Llama, "blk.1.ffn_down.bias", 32),
        (Architecture::Llama, "blk.1.attn_output.bias", 32),
        (Architecture::Qwen2, "output.bias", 16),
    ] {
        let mut file = SmallGguf::language_model(architecture, 1);
        let size = SessionSize::new(64, 16);
        let nodes = |file: &SmallGguf| {
            let memory = ModelMemory::plan(&read(&file.to_bytes()).unwrap(), size, 0).unwrap();
            (memory.prompt.graph().nodes().len(), memory.devices[0].weights)
        };
        let (without, weights) = nodes(&file);
        file.tensor(name, DataType::F32, &[length], &vec![0; 4 * length as usize]);
        assert_eq!(nodes(&file), (without + 1, Bytes(weights.0 + 4 * length)), "{name}");
    }
}

#[test]
fn a_step_is_refused_that_context_and_batch_have_no_room_for() {
    let header = read(&SmallGguf::language_model(Architecture::Llama, 1).header_bytes()).unwrap();
    let mut context = Context::new();
    let model = LanguageModel::new(&mut context, &header, SessionSize::new(64, 16)).unwrap();
    let mark = context.mark();
    for (tokens, keys, wanted) in [(0, 64, "1 to 16"), (17, 64, "1 to 16"), (8, 7, "8 to 64"), (8, 65, "8 to 64")] {
        let error = model.step(&mut context, StepShape { tokens, keys }).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
        assert_eq!(context.mark(), mark, "nothing is built");
        let error = model.visibility(0, StepShape { tokens, keys }).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
    for (past, keys) in [(57, 64), (1, 8), (u64::MAX, 64)] {
        let error = model.visibility(past, StepShape { tokens: 8, keys }).unwrap_err().to_string();
        assert!(error.contains(&format!("0 to {}", keys - 8)) && error.contains(&past.to_string()), "{error}");
    }
    assert!(model.visibility(56, StepShape { tokens: 8, keys: 64 }).is_ok());
    for (context_size, batch) in [(0, 1), (1, 0), (1 << 31, 1)] {
        let size = SessionSize { context: context_size, batch };
        assert!(matches!(LanguageModel::new(&mut Context::new(), &header, size), Err(GgufError::Size { .. })));
    }
    // Steps that look at as much as is rounded up to have one shape.
    assert_eq!(model.step_shape(5, 1), model.step_shape(62, 1));
    assert_eq!(model.step_shape(63, 1).keys, 64);
}

/// What a token sees, told by positions: itself and what is before it, in a window the last ones only.
#[test]
fn masks_show_each_token_what_is_before_it() {
    let header = read(&SmallGguf::language_model(Architecture::Gemma3, 1).header_bytes()).unwrap();
    let (window, size) = (24, SessionSize::new(700, 5));
    let model = LanguageModel::new(&mut Context::new(), &header, size).unwrap();
    let rows = model.window_rows().unwrap();
    // What each row of a ring has, by writing it.
    let mut ring: Vec<Option<u64>> = vec![None; rows as usize];
    let mut past = 0;
    for count in (0..170).map(|step| [5, 1, 3, 4, 5][step % 5]) {
        if past + count > size.context {
            break;
        }
        let shape = model.step_shape(past, count);
        let masks = model.visibility(past, shape).unwrap();
        let (places, seen) = masks.window.unwrap();
        for (position, place) in (past..past + count).zip(&places) {
            ring[*place as usize] = Some(position);
        }
        let keys = shape.keys.min(rows) as usize;
        for token in 0..count {
            let position = past + token;
            let row = &seen[token as usize * keys..][..keys];
            for (key, mask) in ring.iter().zip(row) {
                let sees = key.is_some_and(|key| key <= position && position - key < window);
                assert_eq!(mask.to_f32() == 0.0, sees, "{position} {key:?}");
            }
            assert_eq!(row.iter().filter(|mask| mask.to_f32() == 0.0).count() as u64, (position + 1).min(window));
            let all = &masks.all.as_ref().unwrap()[(token * shape.keys) as usize..][..shape.keys as usize];
            assert!((0..shape.keys).all(|key| (all[key as usize].to_f32() == 0.0) == (key <= position)));
        }
        past += count;
    }
    assert!(past > 2 * rows, "{past} of {rows}");
}
