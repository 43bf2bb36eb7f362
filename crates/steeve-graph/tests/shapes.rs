//! What each function of the context makes, and what it refuses.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use steeve_graph::{
    Bytes, Context, Convolution, CustomOp, DataType, FlashAttention, Glu, GraphError, Interpolation, Layout, Op, Param,
    Pool, Rope, RopeMode, SoftMax, SortOrder, TensorId, Unary, Window,
};

type Built = Result<TensorId, GraphError>;

/// Builds with sources of these layouts; answers what came out, or the error.
fn made(sources: &str, build: impl Fn(&mut Context, &[TensorId]) -> Built) -> String {
    let mut context = Context::new();
    let ids: Vec<_> = sources.split_whitespace().map(|source| source_of(&mut context, source)).collect();
    match build(&mut context, &ids) {
        Ok(id) => {
            let tensor = context.tensor(id).unwrap();
            let view = tensor.view.map_or(String::new(), |view| format!("+{}^{}", view.offset, view.root));
            format!("{}{view}", tensor.layout)
        }
        Err(error) => error.to_string(),
    }
}

/// Appends the source `f32[4,3]`, or `f32[4,3]'` for the transposed view of such a tensor.
fn source_of(context: &mut Context, text: &str) -> TensorId {
    let (plain, turned) = text.strip_suffix('\'').map_or((text, false), |plain| (plain, true));
    let (dtype, shape) = plain.strip_suffix(']').unwrap().split_once('[').unwrap();
    let shape: Vec<u64> = shape.split(',').map(|n| n.parse().unwrap()).collect();
    let id = context.new_tensor(dtype.parse().unwrap(), &shape).unwrap();
    if turned { context.transpose(id).unwrap() } else { id }
}

macro_rules! table {
    ($($law:ident: $($sources:literal $build:expr => $result:literal;)*)*) => {
        $(#[test] fn $law() {
            $(assert_eq!(made($sources, $build), $result, "{}", stringify!($build));)*
        })*
    };
}

table! {
    the_second_is_repeated_to_the_first:
        "f32[4,3] f32[4]" |c, s| c.add(s[0], s[1]) => "f32[4,3]";
        "f32[4,3] f32[4,3]" |c, s| c.sub(s[0], s[1]) => "f32[4,3]";
        "f32[4,6] f32[2,3]" |c, s| c.mul(s[0], s[1]) => "f32[4,6]";
        "f16[4,3] f32[1]" |c, s| c.div(s[0], s[1]) => "f16[4,3]";
        "f32[4] f32[4,3]" |c, s| c.add(s[0], s[1])
            => "add of (f32[4], f32[4,3]): the second must fill the first when it is repeated";
        "f32[4,3] f32[3]" |c, s| c.mul(s[0], s[1])
            => "mul of (f32[4,3], f32[3]): the second must fill the first when it is repeated";

    elementwise_results_have_no_gaps:
        "f32[4,3]'" |c, s| c.sqr(s[0]) => "f32[3,4]";
        "f32[4,3]" |c, s| c.sqrt(s[0]) => "f32[4,3]";
        "f32[4,3]" |c, s| c.log(s[0]) => "f32[4,3]";
        "f32[4,3]" |c, s| c.unary(Unary::Silu, s[0]) => "f32[4,3]";
        "f32[4,3]" |c, s| c.xielu(s[0], [0.5; 4]) => "f32[4,3]";
        "f32[4,3]'" |c, s| c.gelu(s[0]) => "gelu of (f32[3,4]{16,4,48,48}): rows must have no gaps";
        "f32[4,3]" |c, s| c.scale(s[0], 2.0) => "f32[4,3]";
        "f32[4,3]'" |c, s| c.scale(s[0], 2.0)
            => "scale of (f32[3,4]{16,4,48,48}): there must be no gaps but between rows";
        "f32[4,3]" |c, s| c.clamp(s[0], 0.0, 1.0) => "f32[4,3]";
        "f32[4,3]" |c, s| c.norm(s[0], 1e-5) => "f32[4,3]";
        "f32[4,3]" |c, s| c.rms_norm(s[0], 1e-5) => "f32[4,3]";
        "f32[4,3,8]" |c, s| c.group_norm(s[0], 2, 1e-5) => "f32[4,3,8]";
        "f32[4,3]" |c, s| c.l2_norm(s[0], 1e-5) => "f32[4,3]";
        "f32[4,3]" |c, s| c.diag_mask_inf(s[0], 1) => "f32[4,3]";
        "f32[4,3]" |c, s| c.diag_mask_zero(s[0], 1) => "f32[4,3]";
        "f32[4,3]'" |c, s| c.cont(s[0]) => "f32[3,4]";
        "f32[4,3]'" |c, s| c.cont_shaped(s[0], &[12]) => "f32[12]";
        "f32[4,3]" |c, s| c.cont_shaped(s[0], &[5])
            => "cont of (f32[4,3], result f32[5]): the number of elements must stay the same";
        "f16[4,3]" |c, s| c.dup(s[0]) => "f16[4,3]";

    a_gated_unit_takes_halves_or_two_sources:
        "f32[8,3]" |c, s| c.glu(Glu::Swiglu, s[0]) => "f32[4,3]";
        "f32[8,3] f32[8,3]" |c, s| c.glu_split(Glu::Geglu, s[0], s[1]) => "f32[8,3]";
        "f32[7,3]" |c, s| c.glu(Glu::Reglu, s[0]) => "reglu of (f32[7,3]): a row must have two halves";
        "f32[8,3] f32[8,2]" |c, s| c.glu_split(Glu::Swiglu, s[0], s[1])
            => "swiglu of (f32[8,3], f32[8,2]): both shapes must be equal";
        "f32[8,3] f16[8,3]" |c, s| c.glu_split(Glu::Swiglu, s[0], s[1])
            => "swiglu of (f32[8,3], f16[8,3]): both types must be equal";

    products_are_f32:
        "q4_K[256,64] f32[256,5]" |c, s| c.mul_mat(s[0], s[1]) => "f32[64,5]";
        "f16[8,4,2] f32[8,5,6,3]" |c, s| c.mul_mat(s[0], s[1]) => "f32[4,5,6,3]";
        "f16[8,4] f32[7,5]" |c, s| c.mul_mat(s[0], s[1])
            => "mul_mat of (f16[8,4], f32[7,5]): the first dimensions must be equal";
        "f16[8,4,4] f32[8,5,6]" |c, s| c.mul_mat(s[0], s[1])
            => "mul_mat of (f16[8,4,4], f32[8,5,6]): the outer dimensions of the first must divide the second's";
        "f32[4,8]' f32[8,5]" |c, s| c.mul_mat(s[0], s[1])
            => "mul_mat of (f32[8,4]{16,4,128,128}, f32[8,5]): the first must not be transposed";
        "f16[8,4,16] f32[8,1,5] i32[2,5]" |c, s| c.mul_mat_id(s[0], s[1], s[2]) => "f32[4,2,5]";
        "f16[8,4,16] f32[8,2,5] i32[2,5]" |c, s| c.mul_mat_id(s[0], s[1], s[2]) => "f32[4,2,5]";
        "f16[8,4,16] f32[8,1,5] f32[2,5]" |c, s| c.mul_mat_id(s[0], s[1], s[2])
            => "mul_mat_id of (f16[8,4,16], f32[8,1,5], f32[2,5]): the ids must be i32";
        "f16[8,4,16] f32[8,1,5] i32[2,4]" |c, s| c.mul_mat_id(s[0], s[1], s[2])
            => "mul_mat_id of (f16[8,4,16], f32[8,1,5], i32[2,4]): there must be one row of ids for each token";
        "f16[8,4,16] f32[8,3,5] i32[2,5]" |c, s| c.mul_mat_id(s[0], s[1], s[2])
            => "mul_mat_id of (f16[8,4,16], f32[8,3,5], i32[2,5]): the ids of a token must be a multiple of its rows";

    rows_are_taken_and_written:
        "f16[8,100] i32[5]" |c, s| c.get_rows(s[0], s[1]) => "f32[8,5]";
        "i32[8,100] i32[5]" |c, s| c.get_rows(s[0], s[1]) => "i32[8,5]";
        "q8_0[32,100,2] i32[5,2]" |c, s| c.get_rows(s[0], s[1]) => "f32[32,5,2]";
        "f16[8,100] i64[5]" |c, s| c.get_rows(s[0], s[1])
            => "get_rows of (f16[8,100], i64[5]): the ids must be i32";
        "f16[8,100,2] i32[5,3]" |c, s| c.get_rows(s[0], s[1])
            => "get_rows of (f16[8,100,2], i32[5,3]): the ids must have the outer dimensions of the rows";
        "f16[8,100] f32[8,5] i64[5]" |c, s| c.set_rows(s[0], s[1], s[2]) => "f16[8,100]+0^0";
        "f16[8,100] f32[8,5] i64[4]" |c, s| c.set_rows(s[0], s[1], s[2])
            => "set_rows of (f32[8,5], i64[4], f16[8,100]): there must be one id for each row";
        "f16[9,100] f32[8,5] i64[5]" |c, s| c.set_rows(s[0], s[1], s[2])
            => "set_rows of (f32[8,5], i64[5], f16[9,100]): rows and target must have rows of one length";
        "f32[4,3] f32[4,5]" |c, s| c.concat(s[0], s[1], 1) => "f32[4,8]";
        "f32[4,3] f32[4,5]" |c, s| c.concat(s[0], s[1], 0)
            => "concat of (f32[4,3], f32[4,5]): all dimensions but the joined one must be equal";
        "f32[4,3] f32[4,3]" |c, s| c.concat(s[0], s[1], 4)
            => "concat of (f32[4,3], f32[4,3]): parameter 0: missing or out of range";
        "f32[4,3] f16[4,5]" |c, s| c.concat(s[0], s[1], 1)
            => "concat of (f32[4,3], f16[4,5]): both types must be equal";
        "f32[4,1]" |c, s| c.repeat(s[0], &[8, 3]) => "f32[8,3]";
        "f32[4,1]" |c, s| c.repeat(s[0], &[6, 3])
            => "repeat of (f32[4], result f32[6,3]): the source must fill the result when it is repeated";

    sums_and_orders:
        "f16[4,3]" |c, s| c.sum(s[0]) => "f16[1]";
        "f32[4,3]" |c, s| c.sum_rows(s[0]) => "f32[1,3]";
        "f16[4,3]" |c, s| c.mean(s[0]) => "f32[1,3]";
        "f32[4,3]" |c, s| c.argsort(s[0], SortOrder::Ascending) => "i32[4,3]";
        "f32[4,3]" |c, s| c.top_k(s[0], 2) => "i32[2,3]";
        "f32[4,3]" |c, s| c.top_k(s[0], 5) => "top_k of (f32[4,3]): a row must have at least k elements";

    views_share_the_memory_of_their_root:
        "f32[8,4]" |c, s| c.view_1d(s[0], 5, Bytes(8)) => "f32[5]+8^0";
        "f32[8,4]" |c, s| c.view_2d(s[0], [3, 4], 32, Bytes(4)) => "f32[3,4]{4,32,128,128}+4^0";
        "f32[8,4]" |c, s| c.view_3d(s[0], [2, 2, 2], [8, 64], Bytes::ZERO) => "f32[2,2,2]{4,8,64,128}+0^0";
        "f32[8,4]" |c, s| c.view_4d(s[0], [2, 2, 2, 1], [8, 16, 32], Bytes(96)) => "f32[2,2,2]+96^0";
        "f32[8,4]" |c, s| c.view_1d(s[0], 5, Bytes(112))
            => "tensor 0: view outside of tensor 0: expected at most 128 bytes, got 20 at offset 112";
        "f32[8,4]" |c, s| c.view_1d(s[0], 1, Bytes(u64::MAX))
            => "tensor 0: view outside of tensor 0: expected at most 128 bytes, got 4 at offset 9223372036854775807";
        "f32[8,4]" |c, s| { let v = c.view_1d(s[0], 16, Bytes(64))?; c.view_1d(v, 2, Bytes(8)) } => "f32[2]+72^0";
        "f32[8,4]" |c, s| c.reshape(s[0], &[2, 16]) => "f32[2,16]+0^0";
        "f32[8,4]" |c, s| { let v = c.view_1d(s[0], 16, Bytes(64))?; c.reshape(v, &[4, 4]) } => "f32[4,4]+64^0";
        "f32[8,4]" |c, s| c.reshape(s[0], &[3, 16])
            => "reshape of (f32[8,4], result f32[3,16]): the number of elements must stay the same";
        "f32[8,4]'" |c, s| c.reshape(s[0], &[32])
            => "reshape of (f32[4,8]{32,4,128,128}, result f32[32]): the source must have no gaps";
        "f32[8,4,2]" |c, s| c.permute(s[0], [0, 2, 1, 3]) => "f32[8,2,4]{4,128,32,256}+0^0";
        "f32[8,4,2]" |c, s| c.permute(s[0], [2, 0, 1, 3]) => "f32[4,2,8]{32,128,4,256}+0^0";
        "f32[8,4]" |c, s| c.permute(s[0], [0, 0, 1, 3])
            => "permute of (f32[8,4]): parameter 1: missing or out of range";
        "f32[8,4]" |c, s| c.permute(s[0], [0, 4, 1, 3])
            => "permute of (f32[8,4]): parameter 1: missing or out of range";
        "f32[8,4]" |c, s| c.transpose(s[0]) => "f32[4,8]{32,4,128,128}+0^0";
        "f32[8,4] f16[4,8]" |c, s| c.cpy(s[0], s[1]) => "f16[4,8]+0^1";
        "f32[8,4] f16[4,7]" |c, s| c.cpy(s[0], s[1])
            => "cpy of (f32[8,4], f16[4,7]): both must have the same number of elements";

    attention_fits_its_mask:
        "f32[8,4,2]" |c, s| c.soft_max(s[0], None, SoftMax::default()) => "f32[8,4,2]";
        "f32[8,4,2] f16[8,4]" |c, s| c.soft_max(s[0], Some(s[1]), SoftMax::default()) => "f32[8,4,2]";
        "f32[8,4,2] f16[8,3]" |c, s| c.soft_max(s[0], Some(s[1]), SoftMax::default())
            => "soft_max of (f32[8,4,2], f16[8,3]): the mask must have a row for each of the source";
        "f32[8,4,2] i32[8,4]" |c, s| c.soft_max(s[0], Some(s[1]), SoftMax::default())
            => "soft_max of (f32[8,4,2], i32[8,4]): the mask must be f16 or f32";
        "f32[8,4,2]" |c, s| c.soft_max(s[0], None, SoftMax { max_bias: 8.0, ..SoftMax::default() })
            => "soft_max of (f32[8,4,2]): a bias needs a mask";
        "f32[4,8]'" |c, s| c.soft_max(s[0], None, SoftMax::default())
            => "soft_max of (f32[8,4]{16,4,128,128}): the source must have no gaps";
        "f32[8,4,5] i32[5]" |c, s| c.rope(s[0], s[1], None, Rope { dims: 8, ..Rope::default() }) => "f32[8,4,5]";
        "f32[8,4,5] i32[20]" |c, s| c.rope(s[0], s[1], None, Rope { mode: RopeMode::Sections, ..Rope::default() }) => "f32[8,4,5]";
        "f32[8,4,5] i32[5] f32[4]" |c, s| c.rope(s[0], s[1], Some(s[2]), Rope { dims: 8, ..Rope::default() })
            => "f32[8,4,5]";
        "f32[8,4,5] i32[4]" |c, s| c.rope(s[0], s[1], None, Rope::default())
            => "rope of (f32[8,4,5], i32[4]): there must be one position for each token";
        "f32[8,4,5] f32[5]" |c, s| c.rope(s[0], s[1], None, Rope::default())
            => "rope of (f32[8,4,5], f32[5]): the positions must be i32";
        "f32[8,4,5] i32[5] f32[3]" |c, s| c.rope(s[0], s[1], Some(s[2]), Rope { dims: 8, ..Rope::default() })
            => "rope of (f32[8,4,5], i32[5], f32[3]): there must be one frequency factor for each pair";
        "f32[8,5,4] f16[8,9,2] f16[6,9,2] f16[9,5]"
            |c, s| c.flash_attn_ext(s[0], s[1], s[2], Some(s[3]), FlashAttention::default()) => "f32[6,4,5]";
        "f32[8,5,4] f16[8,9,2] f16[6,9,2]"
            |c, s| c.flash_attn_ext(s[0], s[1], s[2], None, FlashAttention::default()) => "f32[6,4,5]";
        "f32[8,5,4] f16[7,9,2] f16[6,9,2]"
            |c, s| c.flash_attn_ext(s[0], s[1], s[2], None, FlashAttention::default())
            => "flash_attn_ext of (f32[8,5,4], f16[7,9,2], f16[6,9,2]): the first dimensions must be equal";
        "f32[8,5,4] f16[8,9,2] f16[6,9,2] f32[9,5]"
            |c, s| c.flash_attn_ext(s[0], s[1], s[2], Some(s[3]), FlashAttention::default())
            => "flash_attn_ext of (f32[8,5,4], f16[8,9,2], f16[6,9,2], f32[9,5]): the mask must be f16";

    images:
        "f32[9,9,3]" |c, s| c.pool_1d(s[0], Pool::Max, 3, 2, 0) => "f32[4,9,3]";
        "f32[9,9,3]" |c, s| c.pool_1d(s[0], Pool::Max, 30, 2, 0)
            => "pool_1d of (f32[9,9,3]): at least one window must fit";
        "f32[9,8,3]" |c, s| c.pool_2d(s[0], Pool::Mean, WINDOW) => "f32[5,4,3]";
        "f32[9,8,3]" |c, s| c.upscale(s[0], 2, Interpolation::Nearest) => "f32[18,16,3]";
        "f32[9,8,3]" |c, s| c.pad(s[0], [1, 0, 2, 0]) => "f32[10,8,5]";
        "f16[3,3,4,8] f32[9,8,4,2]" |c, s| c.im2col(s[0], s[1], Convolution::default(), DataType::F32)
            => "f32[36,7,6,2]";
        "f16[3,3,4,8] f32[9,8,5]" |c, s| c.im2col(s[0], s[1], Convolution::default(), DataType::F32)
            => "im2col of (f16[3,3,4,8], f32[9,8,5]): kernel and image must have the same number of channels";
        "f16[3,3,4,8] f32[2,8,4]" |c, s| c.im2col(s[0], s[1], Convolution::default(), DataType::F32)
            => "im2col of (f16[3,3,4,8], f32[2,8,4]): the kernel must fit into what it is moved over";
        "f16[3,3,4,8] f32[9,8,4]" |c, s| c.im2col(s[0], s[1], STILL, DataType::F32)
            => "im2col of (f16[3,3,4,8], f32[9,8,4]): parameter 0: missing or out of range";
        "f16[3,3,4,8] f32[9,8,4,2]" |c, s| c.conv_2d(s[0], s[1], PADDED) => "f32[9,8,8,2]";
        "f16[3,4,8] f32[9,4]" |c, s| c.conv_1d(s[0], s[1], PADDED) => "f32[9,8]+0^5";
        "f16[3,4,8] f32[9,4,2]" |c, s| c.conv_1d(s[0], s[1], PADDED) => "f32[9,8,2]+0^5";

    operations_without_a_function_are_applied:
        "f32[4,3] f32[4,8] i32[3]" |c, s| c.apply(Op::AddId, &[Some(s[0]), Some(s[1]), Some(s[2])], &[]) => "f32[4,3]";
        "f32[4,3]" |c, s| c.apply(Op::Fill, &[Some(s[0])], &[Param::Float(1.0)]) => "f32[4,3]";
        "f32[4,3]" |c, s| c.apply(Op::Add, &[Some(s[0]), None], &[]) => "add of (f32[4,3], -): source 1: missing";
        "f32[4,3]" |c, s| c.apply(Op::View, &[Some(s[0])], &[])
            => "view of (f32[4,3]): result: its shape does not follow from the sources: expected one that is given";
        "f32[4,3]" |c, s| { let op = c.op("SSM_SCAN", None)?; c.apply(op, &[Some(s[0])], &[]) }
            => "ssm_scan: no shape rule: expected a result that is given by hand";
        "f32[4,3] f32[5]" |c, s| c.custom_shaped(&CustomOp::new("F"), Layout::contiguous(DataType::I8, &[7])?, s, &[]) => "i8[7]";
}

const WINDOW: Window = Window { size: [3, 2], stride: [2, 2], padding: [1.0, 0.0] };
const PADDED: Convolution = Convolution { stride: [1; 2], padding: [1; 2], dilation: [1; 2] };
const STILL: Convolution = Convolution { stride: [0; 2], padding: [1; 2], dilation: [1; 2] };

#[test]
fn a_convolution_is_a_product_of_patches() {
    let mut context = Context::new();
    let kernel = context.external(DataType::F16, &[3, 3, 4, 8]).unwrap();
    let image = context.input(DataType::F32, &[9, 8, 4, 2]).unwrap();
    let result = context.conv_2d(kernel, image, PADDED).unwrap();
    let graph = steeve_graph::Graph::from_outputs(&context, &[result]).unwrap();
    let ops: Vec<_> = graph.nodes().iter().map(|&node| graph.tensor(node).op.name()).collect();
    assert_eq!(ops, ["IM2COL", "RESHAPE", "RESHAPE", "MUL_MAT", "RESHAPE", "PERMUTE", "CONT"]);
}

#[test]
fn no_shape_is_too_large_to_be_refused() {
    let mut context = Context::new();
    let wide = context.external(DataType::I8, &[1 << 40]).unwrap();
    assert!(context.repeat(wide, &[1 << 40, 1 << 30]).is_err());
    assert!(context.upscale(wide, u32::MAX, Interpolation::Nearest).is_err());
    assert!(context.pad(wide, [u32::MAX; 4]).is_err());
    let flat = context.external(DataType::I8, &[1, 1 << 40]).unwrap();
    let tall = context.external(DataType::I8, &[1, 1 << 40]).unwrap();
    assert!(context.mul_mat(flat, tall).is_err());
}
