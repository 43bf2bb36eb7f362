// A caller's own operation. Its source defines `compute`; `Call` is declared ahead of this, for so many sources and parameters.

// The place of an element of the result in a source, whose dimensions start over where they are shorter.
__device__ Place place_in(const Tensor &source, const Tensor &result, u64 index) {
    Place at = place_of(index, result.ne);
    for (int d = 0; d < 4; d++) at.i[d] = at.i[d] % source.ne[d];
    return at;
}

// What a source of f32, f16 or bf16 has where the result has element `index`.
__device__ float read(const Call &call, int source, u64 index) {
    const Tensor &from = call.sources[source];
    return load(from.data + offset_of(from, place_in(from, call.result, index)), from.dtype);
}

// Makes `x` element `index` of a result of f32, f16 or bf16.
__device__ void write(const Call &call, u64 index, float x) {
    store(call.result.data + offset_of(call.result, place_of(index, call.result.ne)), call.result.dtype, x);
}

typedef Call params_custom;
