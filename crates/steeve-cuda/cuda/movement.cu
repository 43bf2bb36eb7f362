// Copies: elements in another place, order or type; rows that ids name.

// The element with a number, of a tensor that can be read as floats.
__device__ float float_at(const Tensor &t, u64 index) {
    Place at = place_of(index, t.ne);
    i64 first = at.i[0];
    at.i[0] = 0;
    return weight_at(t.p + offset_of(t, at), t.type, t.nb[0], first);
}

// Blocks that stay as they are; both tensors have shapes in blocks. i: blocks.
KERNEL(copy_blocks)(ARGS) {
    if (element() >= (u64)a.i[0]) return;
    Place to = place_of(element(), a.r.ne), from = place_of(element(), a.s[0].ne);
    move(a.r.p + offset_of(a.r, to), a.s[0].p + offset_of(a.s[0], from), a.r.size);
}

// The first two dimensions exchanged: tiles of 32 by 32 go through memory that all threads of a block share, so that both
// sides are read and written along their rows. Blocks: columns, rows, planes. i: planes.
template <typename T> __device__ void turn(const Args &a) {
    __shared__ T tile[32][33];
    i64 column = (i64)blockIdx.x * 32, row = (i64)blockIdx.y * 32;
    int x = threadIdx.x % 32, y = threadIdx.x / 32;
    for (i64 plane = blockIdx.z; plane < a.i[0]; plane += gridDim.z) {
        i64 i2 = plane % a.r.ne[2], i3 = plane / a.r.ne[2];
        const char *from = a.s[0].p + i2 * a.s[0].nb[2] + i3 * a.s[0].nb[3];
        char *to = a.r.p + i2 * a.r.nb[2] + i3 * a.r.nb[3];
        __syncthreads();
        for (int k = y; k < 32; k += 8) {
            i64 i0 = column + k, i1 = row + x;
            if (i0 < a.r.ne[0] && i1 < a.r.ne[1]) {
                tile[k][x] = *(const T *)(from + i0 * a.s[0].nb[0] + i1 * a.s[0].nb[1]);
            }
        }
        __syncthreads();
        for (int k = y; k < 32; k += 8) {
            i64 i0 = column + x, i1 = row + k;
            if (i0 < a.r.ne[0] && i1 < a.r.ne[1]) *(T *)(to + i0 * a.r.nb[0] + i1 * a.r.nb[1]) = tile[x][k];
        }
    }
}

KERNEL(turn_2)(ARGS) { turn<u16>(a); }
KERNEL(turn_4)(ARGS) { turn<u32>(a); }

// Whatever can be read as floats to floats. i: elements.
KERNEL(copy_floats)(ARGS) {
    if (element() >= (u64)a.i[0]) return;
    Place to = place_of(element(), a.r.ne);
    store(a.r.p + offset_of(a.r, to), a.r.type, float_at(a.s[0], element()));
}

// The same in lines without gaps, four at a time. i: groups of four.
KERNEL(copy_floats_4)(ARGS) {
    u64 i = element();
    if (i >= (u64)a.i[0]) return;
    store4(a.r.p + i * (a.r.type == F32 ? 16 : 8), a.r.type, weights_at(a.s[0].p, a.s[0].type, (i64)i * 4));
}

// To blocks of 32. The result has a shape in blocks. i: blocks.
KERNEL(copy_encode)(ARGS) {
    if (element() >= (u64)a.i[0]) return;
    float x[32];
    for (int j = 0; j < 32; j++) x[j] = float_at(a.s[0], element() * 32 + j);
    encode(a.r.p + offset_of(a.r, place_of(element(), a.r.ne)), a.r.type, x);
}

template <typename T> __device__ T whole(bool is_whole, i64 x, double y, double low, double high) {
    if (is_whole) return (T)x;
    if (y != y) return 0;
    return y <= low ? (T)low : y >= high ? (T)(i64)high : (T)(i64)y;
}

// Between numbers of which one is whole or double. Real ones lose their fraction when they become whole, and become the
// nearest end of the range if they are beyond it; whole ones keep their lowest bits. i: elements.
KERNEL(copy_cast)(ARGS) {
    if (element() >= (u64)a.i[0]) return;
    const char *from = a.s[0].p + offset_of(a.s[0], place_of(element(), a.s[0].ne));
    char *to = a.r.p + offset_of(a.r, place_of(element(), a.r.ne));
    i64 x = 0;
    double y = 0;
    bool is_whole = true;
    switch (a.s[0].type) {
    case I8: x = *(const i8 *)from; break;
    case I16: x = *(const short *)from; break;
    case I32: x = *(const int *)from; break;
    case I64: x = *(const i64 *)from; break;
    case F64: y = *(const double *)from, is_whole = false; break;
    default: y = load(from, a.s[0].type), is_whole = false;
    }
    double real = is_whole ? (double)x : y;
    switch (a.r.type) {
    case I8: *(i8 *)to = whole<i8>(is_whole, x, y, -128, 127); break;
    case I16: *(short *)to = whole<short>(is_whole, x, y, -32768, 32767); break;
    case I32: *(int *)to = whole<int>(is_whole, x, y, -2147483648.0, 2147483647.0); break;
    case I64:
        if (!is_whole && y >= 9223372036854775808.0) *(i64 *)to = 0x7fffffffffffffffll;
        else *(i64 *)to = whole<i64>(is_whole, x, y, -9223372036854775808.0, 9223372036854775808.0);
        break;
    case F64: *(double *)to = real; break;
    default: store(to, a.r.type, (float)real);
    }
}

// One tensor behind another along a dimension; shapes in blocks. i: blocks, dimension.
KERNEL(concat)(ARGS) {
    if (element() >= (u64)a.i[0]) return;
    int dim = (int)a.i[1];
    Place at = place_of(element(), a.r.ne), from = at;
    bool second = at.i[dim] >= a.s[0].ne[dim];
    if (second) from.i[dim] -= a.s[0].ne[dim];
    const Tensor &source = second ? a.s[1] : a.s[0];
    move(a.r.p + offset_of(a.r, at), source.p + offset_of(source, from), a.r.size);
}

// A tensor again and again; shapes in blocks. i: blocks.
KERNEL(repeat)(ARGS) {
    if (element() >= (u64)a.i[0]) return;
    Place at = place_of(element(), a.r.ne), from;
    for (int d = 0; d < 4; d++) from.i[d] = at.i[d] % a.s[0].ne[d];
    move(a.r.p + offset_of(a.r, at), a.s[0].p + offset_of(a.s[0], from), a.r.size);
}

__device__ i64 id_of(const Tensor &ids, i64 offset) {
    return ids.type == I64 ? *(const i64 *)(ids.p + offset) : *(const int *)(ids.p + offset);
}

// A block does a part of a row: blocks along x rows, along y parts.
KERNEL(get_rows)(ARGS) {
    const Tensor &ids = a.s[1];
    Place at = row_of(blockIdx.x, a.r.ne);
    i64 id = id_of(ids, at.i[1] * ids.nb[0] + at.i[2] * ids.nb[1] + at.i[3] * ids.nb[2]);
    if (id < 0 || id >= a.s[0].ne[1]) {
        if (threadIdx.x == 0) complain(a.flag, a.number, id);
        return;
    }
    const char *from = a.s[0].p + id * a.s[0].nb[1] + at.i[2] * a.s[0].nb[2] + at.i[3] * a.s[0].nb[3];
    char *to = a.r.p + offset_of(a.r, at);
    i64 first = (i64)blockIdx.y * blockDim.x + threadIdx.x, step = (i64)gridDim.y * blockDim.x;
    if (is_block(a.s[0].type)) {
        // Four at a time, which share what their block says.
        for (i64 i = first * 4; i < a.r.ne[0]; i += step * 4) {
            Four four = weights_at(from, a.s[0].type, i);
#pragma unroll
            for (int j = 0; j < 4; j++) *(float *)(to + (i + j) * a.r.nb[0]) = four.x[j];
        }
        return;
    }
    for (i64 i = first; i < a.r.ne[0]; i += step) {
        if (a.r.type == I32) *(int *)(to + i * a.r.nb[0]) = *(const int *)(from + i * a.s[0].nb[0]);
        else *(float *)(to + i * a.r.nb[0]) = load_at(from, a.s[0].type, a.s[0].nb[0], i);
    }
}

// A block writes a row, unless a later one goes to the same place. Slots: rows, ids; the target is the result.
KERNEL(set_rows)(ARGS) {
    const Tensor &rows = a.s[0], &ids = a.s[1];
    Place at = row_of(blockIdx.x, rows.ne);
    const char *line = ids.p + at.i[2] % ids.ne[1] * ids.nb[1] + at.i[3] % ids.ne[2] * ids.nb[2];
    auto id_at = [&](i64 i) {
        return ids.type == I64 ? *(const i64 *)(line + i * ids.nb[0]) : (i64) * (const int *)(line + i * ids.nb[0]);
    };
    i64 id = id_at(at.i[1]);
    if (id < 0 || id >= a.r.ne[1]) {
        if (threadIdx.x == 0) complain(a.flag, a.number, id);
        return;
    }
    int again = 0;
    for (i64 i = at.i[1] + 1 + threadIdx.x; i < rows.ne[1]; i += blockDim.x) again |= id_at(i) == id;
    if (__syncthreads_or(again)) return;
    const char *from = rows.p + offset_of(rows, at);
    char *to = a.r.p + id * a.r.nb[1] + at.i[2] * a.r.nb[2] + at.i[3] * a.r.nb[3];
    if (a.r.type == Q8_0 || a.r.type == Q4_0) {
        for (i64 block = threadIdx.x; block < a.r.ne[0] / 32; block += blockDim.x) {
            float x[32];
            for (int j = 0; j < 32; j++) x[j] = load(from + (block * 32 + j) * rows.nb[0], rows.type);
            encode(to + block * a.r.size, a.r.type, x);
        }
        return;
    }
    for (i64 i = threadIdx.x; i < a.r.ne[0]; i += blockDim.x) {
        store(to + i * a.r.nb[0], a.r.type, load(from + i * rows.nb[0], rows.type));
    }
}
