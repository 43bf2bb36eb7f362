//! What is known of the inputs of a node in, type and shape of its results out. O(dimensions).
//!
//! A rule is a function for each way in which results depend on inputs; [`infer`] says which operation has which. Where rules differ
//! between versions of an operation, they ask for what makes the difference: an axis is an attribute or an input.

mod elementwise;
mod window;
mod matrix;
mod reduce;
pub(super) mod layout;
pub(super) mod gather;
mod lists;
mod resize;
mod network;

use elementwise as each;

use super::call::{Call, Facts, Stuck, one};
use super::data_type::DataType;

/// Returns what is known of the results of a node; [`Stuck::Unknown`] if the operation is not known.
pub(super) fn infer(call: &Call<'_>) -> Facts {
    match call.node.domain.as_str() {
        "" => standard(call),
        "com.microsoft" | "com.ms.internal.nhwc" => microsoft(call),
        "ai.onnx.ml" => classical(call),
        // Other domains often have operations that are the standard's in all but name.
        _ => Err(Stuck::Unknown),
    }
}

#[rustfmt::skip]
fn standard(call: &Call<'_>) -> Facts {
    match call.node.op_type.as_str() {
        "Abs" | "Acos" | "Acosh" | "Affine" | "Asin" | "Asinh" | "Atan" | "Atanh" | "BitwiseNot" | "Ceil" | "Celu" | "Clip" | "Cos"
        | "Cosh" | "CumProd" | "CumSum" | "Elu" | "Erf" | "Exp" | "Floor" | "Gelu" | "GroupNormalization" | "HardSigmoid" | "HardSwish"
        | "Hardmax" | "Identity" | "ImageScaler" | "InstanceNormalization" | "LRN" | "LeakyRelu" | "Log" | "LogSoftmax"
        | "LpNormalization" | "MeanVarianceNormalization" | "Mish" | "Neg" | "Not" | "PRelu" | "ParametricSoftplus"
        | "RMSNormalization" | "Reciprocal" | "Relu" | "ReverseSequence" | "RotaryEmbedding" | "Round" | "ScaledTanh" | "Scale"
        | "Scatter" | "ScatterElements" | "ScatterND" | "Selu" | "Shrink" | "Sigmoid" | "Sign" | "SimplifiedLayerNormalization"
        | "Sin" | "Sinh" | "Softmax" | "Softplus" | "Softsign" | "Sqrt" | "Swish" | "Tan" | "Tanh" | "TensorScatter"
        | "ThresholdedRelu" | "Trilu" | "Optional" | "OptionalGetElement" | "SwiGLU" => each::same(call),
        "StringNormalizer" => each::normalized_words(call),
        "StringSplit" => each::text_parts(call),
        "ImageDecoder" => window::decoded_image(call),
        "CausalConvWithState" => window::causal_convolution(call),
        "LinearAttention" => network::linear_attention(call),
        "Cast" => each::same_shape(call, call.type_attribute("to").unwrap_or_default()),
        "CastLike" => each::same_shape(call, call.data_type(1)),
        "BitCast" => each::same_shape(call, call.type_attribute("to").unwrap_or_default()),
        "IsInf" | "IsNaN" | "RegexFullMatch" => each::same_shape(call, DataType::BOOL),
        "Bernoulli" | "RandomNormalLike" | "RandomUniformLike" => each::same_shape(call, each::type_or_first(call, "dtype")),
        "Dropout" => each::dropout(call),
        "Add" | "Sub" | "Mul" | "Div" | "Mod" | "Pow" | "BitShift" | "BitwiseAnd" | "BitwiseOr" | "BitwiseXor" | "StringConcat" =>
            each::binary(call, call.data_type(0)),
        "Equal" | "Greater" | "Less" | "GreaterOrEqual" | "LessOrEqual" | "And" | "Or" | "Xor" => each::binary(call, DataType::BOOL),
        "Sum" | "Mean" | "Max" | "Min" => each::broadcast_all(call, call.data_type(0)),
        "Where" => each::choice(call),
        "Conv" | "DeformConv" => window::convolution(call, 1, call.data_type(0)),
        "ConvInteger" => window::convolution(call, 1, DataType::INT32),
        "QLinearConv" => network::quantized_convolution(call),
        "ConvTranspose" => window::transposed_convolution(call),
        "AveragePool" | "MaxPool" | "LpPool" => window::pool(call),
        "GlobalAveragePool" | "GlobalMaxPool" | "GlobalLpPool" => window::global_pool(call),
        "MaxRoiPool" | "RoiAlign" => window::regions(call),
        "MaxUnpool" => window::unpool(call),
        "Col2Im" => window::columns_to_image(call),
        "GridSample" => window::grid_sample(call),
        "AffineGrid" => window::affine_grid(call),
        "DepthToSpace" => window::depth_to_space(call),
        "SpaceToDepth" => window::space_to_depth(call),
        "STFT" => window::short_time_fourier(call),
        "DFT" => window::fourier(call),
        "CenterCropPad" => window::cropped_or_padded(call),
        "MatMul" => matrix::matmul(call, [0, 1], call.data_type(0)),
        "MatMulInteger" => matrix::matmul(call, [0, 1], DataType::INT32),
        "QLinearMatMul" => matrix::matmul(call, [0, 3], call.data_type(7)),
        "Gemm" => matrix::gemm(call, [0, 1], call.data_type(0)),
        "Einsum" => matrix::einsum(call),
        "Det" => matrix::determinant(call),
        "RNN" | "GRU" => matrix::recurrent(call, 1),
        "LSTM" => matrix::recurrent(call, 2),
        "ReduceL1" | "ReduceL2" | "ReduceLogSum" | "ReduceLogSumExp" | "ReduceMax" | "ReduceMean" | "ReduceMin" | "ReduceProd"
        | "ReduceSum" | "ReduceSumSquare" => reduce::reduce(call, 1),
        "ArgMax" | "ArgMin" => reduce::position(call),
        "TopK" => reduce::top(call),
        "Reshape" => layout::reshape(call),
        "Flatten" => layout::flatten(call),
        "Squeeze" => layout::squeeze(call),
        "Unsqueeze" => layout::unsqueeze(call),
        "Transpose" => layout::transpose(call),
        "Concat" => layout::concat(call),
        "Split" => layout::split(call),
        "Slice" | "DynamicSlice" => layout::slice(call),
        "Pad" => layout::pad(call),
        "Tile" => layout::tile(call),
        "Expand" => layout::expand(call),
        "Resize" | "Upsample" => resize::resize(call),
        "Gather" => gather::gather(call),
        "GatherElements" => gather::gather_elements(call),
        "GatherND" => gather::gather_nd(call),
        "OneHot" => gather::one_hot(call),
        "Shape" => gather::shape(call),
        "Size" | "SequenceLength" => gather::single(DataType::INT64),
        "OptionalHasElement" => gather::single(DataType::BOOL),
        "Constant" => gather::constant(call),
        "ConstantOfShape" => gather::constant_of_shape(call),
        "RandomNormal" | "RandomUniform" => gather::random(call),
        "Multinomial" => gather::samples(call),
        "Range" => gather::range(call),
        "NonZero" => gather::nonzero(call),
        "Compress" => gather::compress(call),
        "Unique" => gather::unique(call),
        "NonMaxSuppression" => gather::non_max_suppression(call),
        "EyeLike" => gather::eye_like(call),
        "HannWindow" | "HammingWindow" | "BlackmanWindow" => gather::signal_window(call),
        "MelWeightMatrix" => gather::mel_weights(call),
        "SequenceConstruct" | "SequenceEmpty" => lists::list_of(call),
        "SequenceInsert" => lists::longer_list(call),
        "SequenceErase" => lists::shorter_list(call),
        "SequenceAt" => lists::list_item(call),
        "SplitToSequence" => lists::split_to_list(call),
        "ConcatFromSequence" => lists::concat_list(call),
        "BatchNormalization" => network::batch_normalization(call),
        "LayerNormalization" => network::layer_normalization(call, 2),
        "Attention" => network::attention(call, 4, ["q_num_heads", "kv_num_heads"]),
        "QuantizeLinear" => network::quantize(call),
        "DequantizeLinear" => network::dequantize(call),
        "DynamicQuantizeLinear" => network::dynamic_quantize(call),
        "NegativeLogLikelihoodLoss" | "SoftmaxCrossEntropyLoss" => network::loss(call),
        "TfIdfVectorizer" => network::word_counts(call),
        _ => Err(Stuck::Unknown),
    }
}

#[rustfmt::skip]
fn microsoft(call: &Call<'_>) -> Facts {
    match call.node.op_type.as_str() {
        "BiasAdd" | "BiasGelu" | "BiasSoftmax" | "BiasSplitGelu" | "FastGelu" | "Gelu" | "GroupNorm" | "Inverse" | "NhwcFusedSoftmax"
        | "QLinearLeakyRelu" | "QLinearSigmoid" | "QLinearSoftmax" | "QuickGelu" | "RotaryEmbedding" | "GemmaRotaryEmbedding"
        | "Trilu" | "MoE" | "QMoE" | "LongformerAttention" => each::same(call),
        "CausalConvWithState" => window::causal_convolution(call),
        "LinearAttention" => network::linear_attention(call),
        "BiasDropout" => each::dropout(call),
        "QuantizeLinear" => network::quantize(call),
        "DequantizeLinear" => network::dequantize(call),
        "DynamicQuantizeLinear" => network::dynamic_quantize(call),
        "QLinearAdd" | "QLinearMul" => network::quantized_binary(call),
        "QLinearWhere" => network::quantized_choice(call),
        "QLinearConcat" => network::quantized_concat(call),
        "QLinearConv" => network::quantized_convolution(call),
        "QLinearAveragePool" => window::pool(call),
        "QLinearGlobalAveragePool" => window::global_pool(call),
        "QLinearReduceMean" => reduce::reduce(call, 5),
        "FusedConv" => window::convolution(call, 1, call.data_type(0)),
        "NhwcConv" | "NhwcFusedConv" | "Conv" => window::convolution_channels_last(call, 1, call.data_type(0)),
        "NhwcMaxPool" | "MaxPool" | "AveragePool" => window::pool_channels_last(call),
        "CropAndResize" => window::regions(call),
        "GridSample" => window::grid_sample(call),
        "FusedMatMul" | "TransposeMatMul" | "FusedMatMulActivation" => matrix::turned_matmul(call),
        "MatMulIntegerToFloat" => matrix::matmul(call, [0, 1], call.data_type(2)),
        "MatMulInteger16" => matrix::matmul(call, [0, 1], DataType::INT32),
        "QLinearMatMul" => matrix::matmul(call, [0, 3], call.data_type(7)),
        "DynamicQuantizeMatMul" => network::dynamic_quantize_matmul(call),
        "MatMulNBits" | "MatMulBnb4" | "MatMulFpQ4" => matrix::matmul_bits(call),
        "FusedGemm" => matrix::gemm(call, [0, 1], call.data_type(0)),
        "QGemm" => matrix::gemm(call, [0, 3], if call.input(8).is_some() { call.data_type(8) } else { DataType::FLOAT }),
        "DynamicQuantizeLSTM" | "AttnLSTM" => matrix::recurrent(call, 2),
        "SkipLayerNormalization" | "SkipSimplifiedLayerNormalization" => network::skip_layer_normalization(call),
        "SimplifiedLayerNormalization" => network::layer_normalization(call, 1),
        "EmbedLayerNormalization" | "QEmbedLayerNormalization" => network::embed_layer_normalization(call),
        "Attention" => network::projected_attention(call, 4),
        "QAttention" => network::projected_attention(call, 8),
        "MultiHeadAttention" => network::attention(call, 6, ["num_heads", ""]),
        "GroupQueryAttention" => network::attention(call, 3, ["num_heads", "kv_num_heads"]),
        "GatherBlockQuantized" => network::gather_packed(call),
        "Pad" => layout::pad(call),
        "Range" => gather::range(call),
        "GatherND" => gather::gather_nd(call),
        "Unique" => gather::unique(call),
        "IsAllFinite" => one(DataType::BOOL, vec![]),
        _ => Err(Stuck::Unknown),
    }
}

#[rustfmt::skip]
fn classical(call: &Call<'_>) -> Facts {
    match call.node.op_type.as_str() {
        "Scaler" | "Normalizer" => each::same_shape(call, DataType::FLOAT),
        "Binarizer" | "Imputer" => each::same(call),
        "TreeEnsemble" => network::trees(call),
        "LinearClassifier" | "SVMClassifier" | "TreeEnsembleClassifier" => network::classifier(call),
        "LinearRegressor" | "SVMRegressor" | "TreeEnsembleRegressor" => network::regressor(call),
        "ZipMap" => network::named_scores(call),
        "ArrayFeatureExtractor" => network::chosen_columns(call),
        "FeatureVectorizer" => network::joined_columns(call),
        "OneHotEncoder" => network::categories(call),
        "LabelEncoder" | "CategoryMapper" => network::labels(call),
        _ => Err(Stuck::Unknown),
    }
}
