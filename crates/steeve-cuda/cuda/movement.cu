// Copies: elements in another place, order or type; rows that ids name.

// The element with a number, of a tensor that can be read as floats.
__device__ float float_at(const Tensor &t, u64 index) {
    Place at = place_of(index, t.ne);
    i64 first = at.i[0];
    at.i[0] = 0;
    return weight_at(t.data + offset_of(t, at), t.dtype, t.nb[0], first);
}

// Blocks that stay as they are; both tensors have shapes in blocks.
KERNEL(copy_blocks)(const CopyParams &a) {
    if (element() >= a.count) return;
    Place to = place_of(element(), a.result.ne), from = place_of(element(), a.source.ne);
    move(a.result.data + offset_of(a.result, to), a.source.data + offset_of(a.source, from), a.result.size);
}

// The first two dimensions exchanged: tiles of 32 by 32 go through memory that all threads of a block share, so that both
// sides are read and written along their rows. Blocks: columns, rows, planes.
template <typename T> __device__ void turn(const TurnParams &a) {
    __shared__ T tile[32][33];
    i64 column = (i64)blockIdx.x * 32, row = (i64)blockIdx.y * 32;
    int x = threadIdx.x % 32, y = threadIdx.x / 32;
    for (i64 plane = blockIdx.z; plane < a.planes; plane += gridDim.z) {
        i64 i2 = plane % a.result.ne[2], i3 = plane / a.result.ne[2];
        const char *from = a.source.data + i2 * a.source.nb[2] + i3 * a.source.nb[3];
        char *to = a.result.data + i2 * a.result.nb[2] + i3 * a.result.nb[3];
        __syncthreads();
        for (int k = y; k < 32; k += 8) {
            i64 i0 = column + k, i1 = row + x;
            if (i0 < a.result.ne[0] && i1 < a.result.ne[1]) {
                tile[k][x] = *(const T *)(from + i0 * a.source.nb[0] + i1 * a.source.nb[1]);
            }
        }
        __syncthreads();
        for (int k = y; k < 32; k += 8) {
            i64 i0 = column + x, i1 = row + k;
            if (i0 < a.result.ne[0] && i1 < a.result.ne[1]) *(T *)(to + i0 * a.result.nb[0] + i1 * a.result.nb[1]) = tile[x][k];
        }
    }
}

KERNEL(turn_2)(const TurnParams &a) { turn<u16>(a); }
KERNEL(turn_4)(const TurnParams &a) { turn<u32>(a); }

// Whatever can be read as floats to floats.
KERNEL(copy_floats)(const CopyParams &a) {
    if (element() >= a.count) return;
    Place to = place_of(element(), a.result.ne);
    store(a.result.data + offset_of(a.result, to), a.result.dtype, float_at(a.source, element()));
}

// The same in lines without gaps, four at a time.
KERNEL(copy_floats_4)(const CopyParams &a) {
    u64 i = element();
    if (i >= a.count) return;
    Four four = weights_at(a.source.data, a.source.dtype, (i64)i * 4);
    store4(a.result.data + i * (a.result.dtype == F32 ? 16 : 8), a.result.dtype, four);
}

// To blocks of 32. The result has a shape in blocks.
KERNEL(copy_encode)(const CopyParams &a) {
    if (element() >= a.count) return;
    float x[32];
    for (int j = 0; j < 32; j++) x[j] = float_at(a.source, element() * 32 + j);
    encode(a.result.data + offset_of(a.result, place_of(element(), a.result.ne)), a.result.dtype, x);
}

template <typename T> __device__ T whole(bool is_whole, i64 x, double y, double low, double high) {
    if (is_whole) return (T)x;
    if (y != y) return 0;
    return y <= low ? (T)low : y >= high ? (T)(i64)high : (T)(i64)y;
}

// Between numbers of which one is whole or double. Real ones lose their fraction when they become whole, and become the
// nearest end of the range if they are beyond it; whole ones keep their lowest bits.
KERNEL(copy_cast)(const CopyParams &a) {
    if (element() >= a.count) return;
    const char *from = a.source.data + offset_of(a.source, place_of(element(), a.source.ne));
    char *to = a.result.data + offset_of(a.result, place_of(element(), a.result.ne));
    i64 x = 0;
    double y = 0;
    bool is_whole = true;
    switch (a.source.dtype) {
    case I8: x = *(const i8 *)from; break;
    case I16: x = *(const short *)from; break;
    case I32: x = *(const int *)from; break;
    case I64: x = *(const i64 *)from; break;
    case F64: y = *(const double *)from, is_whole = false; break;
    default: y = load(from, a.source.dtype), is_whole = false;
    }
    double real = is_whole ? (double)x : y;
    switch (a.result.dtype) {
    case I8: *(i8 *)to = whole<i8>(is_whole, x, y, -128, 127); break;
    case I16: *(short *)to = whole<short>(is_whole, x, y, -32768, 32767); break;
    case I32: *(int *)to = whole<int>(is_whole, x, y, -2147483648.0, 2147483647.0); break;
    case I64:
        if (!is_whole && y >= 9223372036854775808.0) *(i64 *)to = 0x7fffffffffffffffll;
        else *(i64 *)to = whole<i64>(is_whole, x, y, -9223372036854775808.0, 9223372036854775808.0);
        break;
    case F64: *(double *)to = real; break;
    default: store(to, a.result.dtype, (float)real);
    }
}

// One tensor behind another along a dimension; shapes in blocks.
KERNEL(concat)(const ConcatParams &a) {
    if (element() >= a.count) return;
    int dim = (int)a.dim;
    Place at = place_of(element(), a.result.ne), from = at;
    bool second = at.i[dim] >= a.first.ne[dim];
    if (second) from.i[dim] -= a.first.ne[dim];
    const Tensor &source = second ? a.second : a.first;
    move(a.result.data + offset_of(a.result, at), source.data + offset_of(source, from), a.result.size);
}

// A tensor again and again; shapes in blocks.
KERNEL(repeat)(const CopyParams &a) {
    if (element() >= a.count) return;
    Place at = place_of(element(), a.result.ne), from;
    for (int d = 0; d < 4; d++) from.i[d] = at.i[d] % a.source.ne[d];
    move(a.result.data + offset_of(a.result, at), a.source.data + offset_of(a.source, from), a.result.size);
}

__device__ i64 id_of(const Tensor &ids, i64 offset) {
    return ids.dtype == I64 ? *(const i64 *)(ids.data + offset) : *(const int *)(ids.data + offset);
}

// A block does a part of a row: blocks along x rows, along y parts.
KERNEL(get_rows)(const RowsParams &a) {
    const Tensor &ids = a.ids;
    Place at = row_of(blockIdx.x, a.result.ne);
    i64 id = id_of(ids, at.i[1] * ids.nb[0] + at.i[2] * ids.nb[1] + at.i[3] * ids.nb[2]);
    if (id < 0 || id >= a.rows.ne[1]) {
        if (threadIdx.x == 0) report(a.asserts, id);
        return;
    }
    const char *from = a.rows.data + id * a.rows.nb[1] + at.i[2] * a.rows.nb[2] + at.i[3] * a.rows.nb[3];
    char *to = a.result.data + offset_of(a.result, at);
    i64 first = (i64)blockIdx.y * blockDim.x + threadIdx.x, step = (i64)gridDim.y * blockDim.x;
    if (is_block(a.rows.dtype)) {
        // Four at a time, which share what their block says.
        for (i64 i = first * 4; i < a.result.ne[0]; i += step * 4) {
            Four four = weights_at(from, a.rows.dtype, i);
#pragma unroll
            for (int j = 0; j < 4; j++) *(float *)(to + (i + j) * a.result.nb[0]) = four.x[j];
        }
        return;
    }
    for (i64 i = first; i < a.result.ne[0]; i += step) {
        if (a.result.dtype == I32) *(int *)(to + i * a.result.nb[0]) = *(const int *)(from + i * a.rows.nb[0]);
        else *(float *)(to + i * a.result.nb[0]) = load_at(from, a.rows.dtype, a.rows.nb[0], i);
    }
}

// A block writes a row, unless a later one goes to the same place. Slots: rows, ids; the target is the result.
KERNEL(set_rows)(const RowsParams &a) {
    const Tensor &rows = a.rows, &ids = a.ids;
    Place at = row_of(blockIdx.x, rows.ne);
    const char *line = ids.data + at.i[2] % ids.ne[1] * ids.nb[1] + at.i[3] % ids.ne[2] * ids.nb[2];
    auto id_at = [&](i64 i) {
        return ids.dtype == I64 ? *(const i64 *)(line + i * ids.nb[0]) : (i64) * (const int *)(line + i * ids.nb[0]);
    };
    i64 id = id_at(at.i[1]);
    if (id < 0 || id >= a.result.ne[1]) {
        if (threadIdx.x == 0) report(a.asserts, id);
        return;
    }
    int again = 0;
    for (i64 i = at.i[1] + 1 + threadIdx.x; i < rows.ne[1]; i += blockDim.x) again |= id_at(i) == id;
    if (__syncthreads_or(again)) return;
    const char *from = rows.data + offset_of(rows, at);
    char *to = a.result.data + id * a.result.nb[1] + at.i[2] * a.result.nb[2] + at.i[3] * a.result.nb[3];
    if (a.result.dtype == Q8_0 || a.result.dtype == Q4_0) {
        for (i64 block = threadIdx.x; block < a.result.ne[0] / 32; block += blockDim.x) {
            float x[32];
            for (int j = 0; j < 32; j++) x[j] = load(from + (block * 32 + j) * rows.nb[0], rows.dtype);
            encode(to + block * a.result.size, a.result.dtype, x);
        }
        return;
    }
    for (i64 i = threadIdx.x; i < a.result.ne[0]; i += blockDim.x) {
        store(to + i * a.result.nb[0], a.result.dtype, load(from + i * rows.nb[0], rows.dtype));
    }
}
