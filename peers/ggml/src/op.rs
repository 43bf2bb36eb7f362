//! From the names of operations, which recordings have, to the numbers of the ggml that is linked.

use std::collections::HashMap;
use std::ffi::CStr;

use llama_cpp_sys_2::{GGML_OP_COUNT, ggml_op, ggml_op_name};

/// Every operation by its name.
pub(crate) struct OpNumbers(HashMap<&'static [u8], ggml_op>);

impl OpNumbers {
    pub(crate) fn new() -> Self {
        let named = |op: ggml_op| {
            // SAFETY: every number below the count has a name, which is a string that ends and lives for ever.
            (unsafe { CStr::from_ptr(ggml_op_name(op)) }.to_bytes(), op)
        };
        Self((0..GGML_OP_COUNT).map(named).collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<ggml_op> {
        self.0.get(name.as_bytes()).copied()
    }
}

#[cfg(test)]
mod tests {
    use llama_cpp_sys_2::{GGML_OP_ADD, GGML_OP_GLU, GGML_OP_NONE};
    use steeve_graph::Op;

    use super::*;

    #[test]
    fn ggml_knows_every_operation_of_the_table() {
        let numbers = OpNumbers::new();
        assert_eq!(numbers.get("NONE"), Some(GGML_OP_NONE));
        assert_eq!(numbers.get("ADD"), Some(GGML_OP_ADD));
        assert_eq!(numbers.get("GLU"), Some(GGML_OP_GLU));
        assert!(Op::PLAIN.iter().all(|op| numbers.get(op.name()).is_some()));
    }
}
