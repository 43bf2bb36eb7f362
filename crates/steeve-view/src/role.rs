//! Guesses the role of a tensor from its flags, its name and its operation.
//!
//! Names are those that programs around ggml give (`Qcur-3`, `ffn_gate-0`, `attn_norm-7`); where there is no name, the
//! operation says at least what kind of work it is. A guess decides a colour and nothing else.

use std::collections::BTreeSet;

use steeve_graph::{Flags, Graph, Op, TensorId};

use crate::layer::source_of_copy;

macro_rules! roles {
    ($($(#[$doc:meta])* $name:ident => $title:literal, $letter:literal;)*) => {
        /// The purpose of a tensor.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Role {
            $($(#[$doc])* $name,)*
        }

        impl Role {
            /// All of them, in the order of legends: each is at its own index.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Returns its name in a legend.
            pub const fn title(self) -> &'static str {
                match self {
                    $(Self::$name => $title,)*
                }
            }

            /// Returns the letter for it where there are no colours.
            pub const fn letter(self) -> char {
                match self {
                    $(Self::$name => $letter,)*
                }
            }
        }
    };
}

roles! {
    /// The caller writes it before a run.
    Input => "input", 'i';
    /// The caller reads it after a run.
    Output => "output", 'o';
    /// Queries, keys, values, their products and masks.
    Attention => "attention", 'a';
    /// Gates, experts and what belongs to them.
    FeedForward => "feed-forward", 'f';
    /// Normalised values.
    Norm => "norm", 'n';
    /// Values that run along a model from layer to layer.
    Residual => "residual", 'r';
    /// State-space and other recurrent layers.
    State => "state space", 's';
    /// Convolutions and what unfolds images for them.
    Convolution => "convolution", 'v';
    /// Gradients and what else training needs.
    Training => "training", 't';
    /// Matrix products of unknown purpose.
    Product => "matrix product", 'm';
    /// Elementwise work of unknown purpose.
    Elementwise => "elementwise", 'e';
    /// A copy of values in another order or type.
    Copy => "copy", 'c';
    /// A copy of a weight, as schedulers make for a device that does not hold it.
    WeightCopy => "weight copy", 'w';
    /// Whatever else there is.
    Other => "other", 'x';
}

/// Roles by parts of names in lower case. The first match counts; `^` is where a name begins, `$` where the word ends:
/// after it and its number there is no letter.
const NAMES: &[(Role, &[&str])] = &[
    (Role::Training, &["grad", "loss", "opt_step"]),
    (Role::State, &["ssm", "mamba", "kda_", "linear_attn", "conv_input", "conv_output", "conv_state", "predelta"]),
    (Role::State, &[".conv.", "^cache_r_", "^cache_s_", "decay", "kv_old", "kv_new"]),
    (
        Role::FeedForward,
        &["ffn_moe", "ffn_shexp", "ffn_gate", "ffn_up", "ffn_down", "ffn_out", "ffn_swiglu", "mlp", "expert"],
    ),
    (Role::FeedForward, &["gate_up", "geglu", "swiglu", "reglu"]),
    (Role::Norm, &["norm"]),
    (Role::Convolution, &["embd_conv", "patch_embd", "patch_embed", "patch_conv"]),
    (Role::Residual, &["l_out", "ffn_inp", "embd", "embed", "residual", "hidden", "sa_out", "layer_out", "block_out"]),
    // What runs along diffusion models, and along the many streams of gemma3n.
    (Role::Residual, &["_blocks.", "middle_block", "inp_per_layer", "per_layer_proj", "prediction", "^corrected"]),
    (
        Role::Residual,
        &["laurel", "^innovation", "^inp_scaled", "^inp_stacked", "^inpl", "^layer_inp", "^res$", "^resid"],
    ),
    (Role::Attention, &["q_states", "k_states", "v_states", "^cache_k", "^cache_v", "indexer", "msa_", "mla"]),
    (Role::Attention, &["^q$", "^k$", "^v$", "^kv$", "^qr$", "^qk", "mask"]),
    (Role::State, &["state", "gla"]),
    (
        Role::Attention,
        &["attn", "attention", "qcur", "kcur", "vcur", "kq", "q_pe", "k_pe", "kv_", "q_nope", "v_cont", "qkv"],
    ),
    (Role::FeedForward, &["ffn", "fc1", "fc2"]),
    (Role::Output, &["result_output", "logits"]),
    (Role::Input, &["^inp_tokens", "^inp_pos", "^inp_out_ids", "^input"]),
];

/// Roles by parts of operations.
const OPERATIONS: &[(Role, &[&str])] = &[
    (Role::Training, &["_back", "opt_step", "cross_entropy", "out_prod", "count_equal"]),
    (Role::State, &["ssm_", "rwkv", "gated_linear", "delta_net"]),
    (Role::Attention, &["flash_attn", "soft_max", "rope", "win_part", "win_unpart", "rel_pos"]),
    (Role::FeedForward, &["glu", "mul_mat_id", "top_k", "argsort"]),
    (Role::Norm, &["norm"]),
    (Role::Convolution, &["conv", "im2col", "pool", "upscale"]),
    (Role::State, &["lstm", "gru", "svdf"]),
    (Role::Product, &["mul_mat", "matmul", "fully_connected", "gemm"]),
    (
        Role::Copy,
        &[
            "cont",
            "cpy",
            "dup",
            "concat",
            "repeat",
            "get_rows",
            "set_rows",
            "pad",
            "reshape",
            "permute",
            "transpose",
            "slice",
            "squeeze",
            "expand_dims",
            "unpack",
        ],
    ),
    (
        Role::Elementwise,
        &[
            "add",
            "sub",
            "mul",
            "div",
            "scale",
            "sqr",
            "sqrt",
            "exp",
            "log",
            "neg",
            "abs",
            "silu",
            "gelu",
            "relu",
            "tanh",
            "sigmoid",
            "clamp",
            "sum",
            "logistic",
            "hard_swish",
        ],
    ),
];

impl Role {
    /// Guesses a role from what is known of one tensor alone.
    ///
    /// ```
    /// use steeve_graph::Flags;
    /// use steeve_view::Role;
    /// assert_eq!(Role::guess(Flags::NONE, "Qcur-3", "mul_mat"), Role::Attention);
    /// assert_eq!(Role::guess(Flags::NONE, "node_12", "mul_mat"), Role::Product);
    /// assert_eq!(Role::guess(Flags::INPUT, "mask", ""), Role::Input);
    /// ```
    pub fn guess(flags: Flags, name: &str, operation: &str) -> Self {
        // Flags of a scheduler's copy say how long it must live, and nothing of what it is for.
        if source_of_copy(name).is_some() {
            return Self::of_name(name).unwrap_or(Self::Copy);
        }
        if flags.is_input() {
            return Self::Input;
        }
        if flags.is_output() {
            return Self::Output;
        }
        let by_operation = Self::of_operation(operation);
        if is_path(name) && by_operation != Self::Other {
            return by_operation;
        }
        Self::of_name(name).unwrap_or(by_operation)
    }

    /// Returns whether neighbours without a name most likely belong to it too.
    pub(crate) const fn spreads(self) -> bool {
        matches!(self, Self::Attention | Self::FeedForward | Self::State)
    }

    /// Returns whether an operation alone says little, so that a neighbour may say more.
    pub(crate) const fn is_vague(self) -> bool {
        matches!(self, Self::Product | Self::Elementwise | Self::Copy | Self::Other)
    }

    pub(crate) fn of_name(name: &str) -> Option<Self> {
        let source = source_of_copy(name);
        let name = source.unwrap_or(name).to_lowercase();
        if source.is_some() && is_weight_name(&name) {
            return Some(Self::WeightCopy);
        }
        if is_no_name(&name) {
            return None;
        }
        NAMES.iter().find(|(_, parts)| parts.iter().any(|part| fits(part, &name))).map(|(role, _)| *role)
    }

    fn of_operation(operation: &str) -> Self {
        let fits = |parts: &[&str]| parts.iter().any(|part| operation.contains(part));
        OPERATIONS.iter().find(|(_, parts)| fits(parts)).map_or(Self::Other, |(role, _)| *role)
    }
}

/// Tensors of which nodes write a part, such as caches: they belong to the caller, but are no weights.
pub(crate) struct WrittenLeafs(BTreeSet<TensorId>);

impl WrittenLeafs {
    pub(crate) fn of(graph: &Graph) -> Self {
        let writes = |node: &&TensorId| {
            let it = graph.tensor(**node);
            it.is_view() && it.op != Op::None && !it.op.writes_nothing()
        };
        Self(graph.nodes().iter().filter(writes).map(|node| graph.root(*node)).collect())
    }

    /// Returns whether a tensor has the values of a weight and nothing else, perhaps in another type or order.
    pub(crate) fn is_weight_copy(&self, graph: &Graph, mut tensor: TensorId) -> bool {
        // Sources come before the tensors made of them, so this terminates.
        while matches!(graph.tensor(tensor).op, Op::Cpy | Op::Cont | Op::Dup) {
            let Some(Some(source)) = graph.sources(tensor).first().copied() else { return false };
            tensor = graph.root(source);
            let (it, name) = (graph.tensor(tensor), graph.name(tensor));
            if it.op == Op::None {
                let is_weight = is_weight_name(name) || !(is_no_name(name) || name.starts_with("cache_"));
                return it.external && !it.flags.is_input() && is_weight && !self.0.contains(&tensor);
            }
        }
        false
    }
}

/// Returns whether a name is a path of modules, as TensorFlow's are: a fused operator has those of all that went into it.
fn is_path(name: &str) -> bool {
    name.contains('/')
}

/// Returns whether a name contains a part, which may be anchored to its begin and end.
fn fits(part: &str, name: &str) -> bool {
    let Some(part) = part.strip_prefix('^') else { return name.contains(part) };
    let Some(part) = part.strip_suffix('$') else { return name.starts_with(part) };
    let rest = name.strip_prefix(part).map(|rest| rest.trim_start_matches(|it: char| it.is_ascii_digit()));
    rest.is_some_and(|rest| !rest.starts_with(char::is_alphabetic))
}

fn is_weight_name(name: &str) -> bool {
    [".weight", ".bias"].iter().any(|word| name.contains(word))
}

/// Returns whether a name is one that ggml gives to unnamed tensors: `node_12`, or ` (view) (cont)`.
pub(crate) fn is_no_name(name: &str) -> bool {
    let numbered =
        |prefix: &str| name.strip_prefix(prefix).is_some_and(|rest| rest.split(' ').next().is_some_and(is_digits));
    name.is_empty() || name.starts_with(' ') || name.starts_with('#') || numbered("node_") || numbered("leaf_")
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|letter| letter.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_before_operations() {
        let role = |name, operation| Role::guess(Flags::NONE, name, operation);
        assert_eq!(role("attn_norm-0", "mul"), Role::Norm);
        assert_eq!(role("ffn_moe_gate-4", "mul_mat_id"), Role::FeedForward);
        assert_eq!(role("ffn_inp-4", "add"), Role::Residual);
        assert_eq!(role("node_17", "flash_attn_ext"), Role::Attention);
        assert_eq!(role("grad for node_3", "add"), Role::Training);
        assert_eq!(role(" (permuted) (cont)", "cont"), Role::Copy);
        assert_eq!(role("", "frobnicate"), Role::Other);
        assert_eq!(role("model/conv/Relu;model/batch_norm/FusedBatchNormV3", "conv_2d"), Role::Convolution);
        assert_eq!(role("model/ffn_gate", "frobnicate"), Role::FeedForward);
    }

    #[test]
    fn copies_that_a_scheduler_makes_have_the_role_of_their_source() {
        let role = |flags, name| Role::guess(flags, name, "");
        let kept = Flags::INPUT | Flags::OUTPUT;
        assert_eq!(role(Flags::NONE, "CUDA0#blk.0.attn_q.weight#0"), Role::WeightCopy);
        assert_eq!(role(Flags::NONE, "CUDA0#blk.7.ffn_gate_exps.weight#1"), Role::WeightCopy);
        assert_eq!(role(kept, "CUDA1#l_out-15#2"), Role::Residual);
        assert_eq!(role(kept, "CPU#attn_inp_kq_mask#0"), Role::Attention);
        assert_eq!(role(kept, "CPU#inp_tokens#3"), Role::Input);
        assert_eq!(role(Flags::NONE, "CUDA0#cache_k_l3 (view) (permuted)#0"), Role::Attention);
        assert_eq!(role(Flags::NONE, "CUDA0#leaf_12#0"), Role::Copy);
        assert_eq!(role(Flags::NONE, "blk.0.attn_q.weight"), Role::Attention, "no copy");
    }

    #[test]
    fn names_of_many_models_tell_the_role() {
        let table = [
            (Role::Attention, "q-3 kq_scaled_2-0 fattn_mla-1 q_states-0 qr-2 kv-1 kqv_out-7 wqkv_b-0 KQ_mask msa_bs-1"),
            (Role::Attention, "indexer_score-4 attn_gate_sig-0 Kcur-post-rope-3 q_nope_absorbed-1 QKVcur_silu-2"),
            (Role::FeedForward, "ffn_moe_gate_up-0 gate_up-3 ffn_geglu-1 ffn_up_b-2 shared_expert_gate-5 ffn_act-0"),
            (Role::Norm, "norm-1 attn_post_norm-2 Qcur_normed-0 q_a_norm-3 model.layers.{}.operator_norm-1"),
            (
                Role::Residual,
                "l_out-3 sa_out-2 layer_out-1 nemotron_h_block_out-0 inpL inp_scaled res-4 res_2 corrected-1",
            ),
            (
                Role::Residual,
                "ggml_runner_cut:unet.input_blocks.4|h| attn_residual-0 model.embed_tokens hidden_scaled-2",
            ),
            (
                Role::State,
                "mamba2_y_add_d-3 conv_output_silu-1 linear_attn_out-5 kda_out-0 q_conv_predelta-1 conv_states-1",
            ),
            (Role::State, "model.layers.{}.conv.in_proj-0 kv_old_s-3 diag_decay-1"),
            (Role::Convolution, "embd_conv patch_embd"),
            (Role::Input, "input input_1 inp_tokens"),
        ];
        for (role, names) in table {
            for name in names.split(' ') {
                assert_eq!(Role::of_name(name), Some(role), "{name}");
            }
        }
        for name in ["resnet_7", "res2a_branch1", "query", "vector", "kernel"] {
            assert_eq!(Role::of_name(name), None, "{name}");
        }
    }

    #[test]
    fn letters_and_titles_are_unique() {
        for (index, role) in Role::ALL.iter().enumerate() {
            assert_eq!(*role as usize, index);
            for other in &Role::ALL[..index] {
                assert!(role.letter() != other.letter() && role.title() != other.title());
            }
        }
    }
}
