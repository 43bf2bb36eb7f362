//! Data types as kernels know them: their facts, which [`DataType`] has, in CUDA C, and which of them kernels read and write.

use std::fmt::Write;

use steeve_graph::DataType;

/// The name in CUDA C: `Q4_K`.
fn name(dtype: DataType) -> String {
    dtype.name().to_uppercase()
}

/// Returns whether elements can be read as f32, and written by rounding.
pub(crate) fn can_be_rounded_to(dtype: DataType) -> bool {
    dtype.is_float() || matches!(dtype, DataType::Q8_0 | DataType::Q4_0)
}

/// Returns whether it has blocks that only weights have: they are read as f32, and nothing is rounded to them.
pub(crate) fn is_weight_block(dtype: DataType) -> bool {
    use DataType::{Mxfp4, Q2K, Q3K, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K};
    matches!(dtype, Q4_1 | Q5_0 | Q5_1 | Mxfp4 | Q2K | Q3K | Q4K | Q5K | Q6K)
}

/// Returns whether weights can have it: whether elements can be read as f32.
pub(crate) fn is_weight(dtype: DataType) -> bool {
    can_be_rounded_to(dtype) || is_weight_block(dtype)
}

/// Returns the number that kernels know a type by.
pub(crate) fn number(dtype: DataType) -> i32 {
    dtype.ggml_id().cast_signed()
}

/// Returns the types in CUDA C: their numbers, the elements and bytes of a block, and what kernels read blocks of.
pub(crate) fn declarations() -> String {
    let mut text = String::from("// No type in particular.\nenum DataType : int { ANY = -1");
    for &dtype in DataType::ALL {
        let _ = write!(text, ", {} = {}", name(dtype), number(dtype));
    }
    text += " };\ntemplate <int TYPE> constexpr int block_length = 1;\ntemplate <int TYPE> constexpr int block_bytes = 0;\n";
    for &dtype in DataType::ALL {
        let (name, length, bytes) = (name(dtype), dtype.block_len(), dtype.block_bytes());
        let _ = writeln!(text, "template <> constexpr int block_length<{name}> = {length};");
        let _ = writeln!(text, "template <> constexpr int block_bytes<{name}> = {bytes};");
    }
    text += &predicate("is_weight_block", is_weight_block);
    text += &predicate("is_block", |dtype| is_weight(dtype) && dtype.block_len() > 1);
    text
}

fn predicate(function: &str, holds: impl Fn(DataType) -> bool) -> String {
    let mut text = format!("constexpr bool {function}(int type) {{\n    switch (type) {{\n");
    for &dtype in DataType::ALL.iter().filter(|dtype| holds(**dtype)) {
        let _ = writeln!(text, "    case {}:", name(dtype));
    }
    text += "        return true;\n    default:\n        return false;\n    }\n}\n";
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_know_every_type_by_its_name_and_its_facts() {
        let text = declarations();
        for fact in [
            "F32 = 0,",
            "Q4_K = 12",
            "block_length<Q4_K> = 256;",
            "block_bytes<Q4_K> = 144;",
            "    case MXFP4:",
            "    case Q8_0:",
        ] {
            assert!(text.contains(fact), "{fact} is missing:\n{text}");
        }
        let (weights, blocks) = text.split_once("bool is_block").unwrap();
        assert!(!weights.contains("case Q8_0") && !blocks.contains("case F16"));
    }
}
