//! What a tensor is for, guessed from its flags, its name and its operation.
//!
//! Names are those that programs around ggml give (`Qcur-3`, `ffn_gate-0`, `attn_norm-7`); where there is no name, the
//! operation says at least what kind of work it is. A guess decides a colour and nothing else.

use steeve_graph::Flags;

macro_rules! roles {
    ($($(#[$doc:meta])* $name:ident => $title:literal, $letter:literal;)*) => {
        /// What a tensor is for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Role {
            $($(#[$doc])* $name,)*
        }

        impl Role {
            /// All of them, in the order of legends: each is at its own index.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// What a legend calls it.
            pub const fn title(self) -> &'static str {
                match self {
                    $(Self::$name => $title,)*
                }
            }

            /// What stands for it where there are no colours.
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
    /// What runs along a model from layer to layer.
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
    /// The same values in another order or type.
    Copy => "copy", 'c';
    /// Whatever else there is.
    Other => "other", 'x';
}

/// What names tell. The first that fits counts.
const NAMES: &[(Role, &[&str])] = &[
    (Role::Training, &["grad", "loss", "opt_step"]),
    (
        Role::FeedForward,
        &["ffn_moe", "ffn_shexp", "ffn_gate", "ffn_up", "ffn_down", "ffn_out", "ffn_swiglu", "mlp", "expert"],
    ),
    (Role::Norm, &["norm"]),
    (Role::Residual, &["l_out", "ffn_inp", "embd", "residual", "hidden"]),
    (Role::State, &["ssm", "conv_state", "state", "mamba", "gla"]),
    (
        Role::Attention,
        &["attn", "attention", "qcur", "kcur", "vcur", "kq", "q_pe", "k_pe", "kv_", "q_nope", "v_cont", "qkv"],
    ),
    (Role::FeedForward, &["ffn", "fc1", "fc2"]),
    (Role::Output, &["result_output", "logits"]),
];

/// What operations tell.
const OPERATIONS: &[(Role, &[&str])] = &[
    (Role::Training, &["_back", "opt_step", "cross_entropy", "out_prod", "count_equal"]),
    (Role::State, &["ssm_", "rwkv", "gated_linear", "delta_net"]),
    (Role::Attention, &["flash_attn", "soft_max", "rope"]),
    (Role::FeedForward, &["glu", "mul_mat_id", "top_k", "argsort"]),
    (Role::Norm, &["norm"]),
    (Role::Convolution, &["conv", "im2col", "pool", "upscale", "win_part", "win_unpart", "rel_pos"]),
    (Role::Product, &["mul_mat"]),
    (
        Role::Copy,
        &["cont", "cpy", "dup", "concat", "repeat", "get_rows", "set_rows", "pad", "reshape", "permute", "transpose"],
    ),
    (
        Role::Elementwise,
        &[
            "add", "sub", "mul", "div", "scale", "sqr", "sqrt", "exp", "log", "neg", "abs", "silu", "gelu", "relu",
            "tanh", "sigmoid", "clamp", "sum",
        ],
    ),
];

impl Role {
    /// A guess from what one tensor says of itself.
    ///
    /// ```
    /// use steeve_graph::Flags;
    /// use steeve_view::Role;
    /// assert_eq!(Role::guess(Flags::NONE, "Qcur-3", "mul_mat"), Role::Attention);
    /// assert_eq!(Role::guess(Flags::NONE, "node_12", "mul_mat"), Role::Product);
    /// assert_eq!(Role::guess(Flags::INPUT, "mask", ""), Role::Input);
    /// ```
    pub fn guess(flags: Flags, name: &str, operation: &str) -> Self {
        if flags.is_input() {
            return Self::Input;
        }
        if flags.is_output() {
            return Self::Output;
        }
        Self::of_name(name).unwrap_or_else(|| Self::of_operation(operation))
    }

    /// Whether neighbours without a name most likely belong to it too.
    pub(crate) const fn spreads(self) -> bool {
        matches!(self, Self::Attention | Self::FeedForward | Self::State)
    }

    /// Whether an operation alone says little, so that a neighbour may say more.
    pub(crate) const fn is_vague(self) -> bool {
        matches!(self, Self::Product | Self::Elementwise | Self::Copy | Self::Other)
    }

    pub(crate) fn of_name(name: &str) -> Option<Self> {
        let name = name.to_lowercase();
        if is_no_name(&name) {
            return None;
        }
        NAMES.iter().find(|(_, parts)| parts.iter().any(|part| name.contains(part))).map(|(role, _)| *role)
    }

    fn of_operation(operation: &str) -> Self {
        let fits = |parts: &[&str]| parts.iter().any(|part| operation.contains(part));
        OPERATIONS.iter().find(|(_, parts)| fits(parts)).map_or(Self::Other, |(role, _)| *role)
    }
}

/// What ggml calls a tensor that nobody has named: `node_12`, or ` (view) (cont)`.
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
