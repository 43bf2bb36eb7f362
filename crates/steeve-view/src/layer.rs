//! Guesses the layer of a tensor from its name.

/// Returns the number of the block of a network to which a tensor of this name belongs. Knows the names that programs
/// around ggml give (`l_out-12`, `blk.12.attn_q.weight`, `cache_k_l12`) and those of checkpoints (`layers.12.mlp`),
/// also with what ggml adds when it views or copies a tensor.
///
/// ```
/// use steeve_view::layer_of;
/// assert_eq!(layer_of("l_out-12"), Some(12));
/// assert_eq!(layer_of("CUDA0#blk.3.ffn_up.weight#0"), Some(3));
/// assert_eq!(layer_of("node_12"), None);
/// ```
pub fn layer_of(name: &str) -> Option<u32> {
    let name = source_of_copy(name).unwrap_or(name);
    // What ggml adds: " (view)", " (permuted) (cont)".
    let name = name.split(" (").next().unwrap_or(name);
    let numbered = name.rsplit_once('-').and_then(|(_, number)| whole_number(number));
    numbered.or_else(|| after_word(name)).or_else(|| of_cache(name))
}

/// Returns the name of the tensor that a scheduler's copy was made of: `blk.0.attn_q.weight` of
/// `CUDA0#blk.0.attn_q.weight#0`.
pub(crate) fn source_of_copy(name: &str) -> Option<&str> {
    let (backend, rest) = name.split_once('#')?;
    let (source, copy) = rest.rsplit_once('#')?;
    (!backend.is_empty() && !source.is_empty() && whole_number(copy).is_some()).then_some(source)
}

/// Returns the number after `blk.`, `layers.` and the like.
fn after_word(name: &str) -> Option<u32> {
    const WORDS: [&str; 7] = ["blk", "block", "blocks", "layer", "layers", "h", "resblocks"];
    let mut words = name.split(['.', '/', ':']).peekable();
    while let Some(word) = words.next() {
        let number = if WORDS.contains(&word) { words.peek().copied() } else { word.strip_prefix("layer") };
        if let Some(number) = number.and_then(|it| whole_number(it.trim_start_matches('_'))) {
            return Some(number);
        }
    }
    None
}

/// Returns the number of `cache_k_l12`.
fn of_cache(name: &str) -> Option<u32> {
    let (cache, number) = name.rsplit_once("_l")?;
    if cache.starts_with("cache_") { whole_number(number) } else { None }
}

fn whole_number(text: &str) -> Option<u32> {
    // Other signs than digits are no part of a layer's number.
    if text.bytes().all(|letter| letter.is_ascii_digit()) { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::{layer_of, source_of_copy};

    #[test]
    fn names_tell_the_layer() {
        let table = [
            ("l_out-12", Some(12)),
            ("kq-0", Some(0)),
            ("Qcur-post-rope-7", Some(7)),
            ("Kcur-3 (permuted) (copy)", Some(3)),
            ("mamba2_y_add_d-5", Some(5)),
            ("blk.12.ffn_gate_exps.weight", Some(12)),
            ("v.blk.4.attn_out", Some(4)),
            ("model.layers.31.mlp.down_proj", Some(31)),
            ("model.layers.{}.conv.in_proj-2", Some(2)),
            ("encoder.blocks.3.attn", Some(3)),
            ("h.9.mlp", Some(9)),
            ("layer_20", Some(20)),
            ("layer3.t17", Some(3)),
            ("cache_k_l12 (view) (permuted)", Some(12)),
            ("FAKE0#blk.5.attn_q.weight#0", Some(5)),
            ("CPU#Vcur-8 (view)#1", Some(8)),
            ("FAKE0#leaf_9#0", None),
            ("node_12", None),
            ("leaf_3", None),
            ("result_output", None),
            ("inp_per_layer", None),
            ("conv-x", None),
            ("conv-", None),
            ("a-+3", None),
            ("a-99999999999", None),
            ("", None),
        ];
        for (name, layer) in table {
            assert_eq!(layer_of(name), layer, "{name}");
        }
    }

    #[test]
    fn copies_tell_their_source() {
        assert_eq!(source_of_copy("CUDA0#blk.0.attn_q.weight#0"), Some("blk.0.attn_q.weight"));
        assert_eq!(source_of_copy("CPU#a#b#12"), Some("a#b"));
        for name in ["a#b", "#12", "#a#0", "a##0", "a#b#c", "a"] {
            assert_eq!(source_of_copy(name), None, "{name}");
        }
    }
}
