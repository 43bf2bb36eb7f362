// Images: patches, windows, other sizes. A thread does an element of the result.

KERNEL(im2col)(const Im2colParams &a) {
    if (element() >= a.count) return;
    Place at = place_of(element(), a.result.ne);
    i64 width = a.kernel_size[0], height = a.kernel_size[1];
    i64 kx = at.i[0] % width, ky = at.i[0] / width % height, channel = at.i[0] / width / height;
    bool flat = a.is_flat;
    i64 across = at.i[1], down = flat ? 0 : at.i[2], image = flat ? at.i[2] : at.i[3];
    i64 x = across * a.stride[0] + kx * a.dilation[0] - a.padding[0];
    i64 y = down * a.stride[1] + ky * a.dilation[1] - a.padding[1];
    float value = 0;
    if (x >= 0 && x < a.image_size[0] && y >= 0 && y < a.image_size[1]) {
        const i64 *steps = a.image_steps;
        const char *from = a.image.data + x * steps[0] + y * steps[1] + channel * steps[2] + image * steps[3];
        value = load(from, a.image.dtype);
    }
    store(a.result.data + offset_of(a.result, at), a.result.dtype, value);
}

KERNEL(pool)(const PoolParams &a) {
    if (element() >= a.count) return;
    Place at = place_of(element(), a.result.ne);
    bool mean = a.is_mean, down = a.goes_down;
    i64 x = at.i[0] * a.stride[0] - a.padding[0], y = at.i[1] * a.stride[1] - a.padding[1], n = a.source.ne[0];
    i64 left = x < 0 ? 0 : x > n ? n : x, right = x + a.size[0];
    right = right < 0 ? 0 : right > n ? n : right;
    i64 top = 0, bottom = 1;
    if (down) {
        i64 rows = a.source.ne[1];
        top = y < 0 ? 0 : y > rows ? rows : y;
        bottom = y + a.size[1];
        bottom = bottom < 0 ? 0 : bottom > rows ? rows : bottom;
    }
    if (n == 0) bottom = top;
    Place from = at;
    float out = mean ? 0 : -3.40282347e38f;
    for (i64 row = top; row < bottom; row++) {
        if (down) from.i[1] = row;
        for (i64 i = left; i < right; i++) {
            from.i[0] = i;
            float v = load(a.source.data + offset_of(a.source, from), a.source.dtype);
            out = mean ? out + v : v > out ? v : out;
        }
    }
    if (mean) {
        if (down) out = out / ((float)a.size[0] * (float)a.size[1]);
        else out = right > left ? out / (float)(right - left) : 0;
    }
    store(a.result.data + offset_of(a.result, at), a.result.dtype, out);
}

__device__ i64 nearest(i64 at, float factor, i64 length) {
    i64 i = (i64)((float)at / factor);
    return i < length - 1 ? i : length - 1;
}

KERNEL(upscale_nearest)(const UpscaleParams &a) {
    if (element() >= a.count) return;
    Place at = place_of(element(), a.result.ne), from;
    for (int d = 0; d < 4; d++) from.i[d] = nearest(at.i[d], a.factors[d], a.source.ne[d]);
    move(a.result.data + offset_of(a.result, at), a.source.data + offset_of(a.source, from), a.result.size);
}

KERNEL(upscale_bilinear)(const UpscaleParams &a) {
    if (element() >= a.count) return;
    Place at = place_of(element(), a.result.ne), from;
    from.i[2] = nearest(at.i[2], a.factors[2], a.source.ne[2]);
    from.i[3] = nearest(at.i[3], a.factors[3], a.source.ne[3]);
    i64 near[2][2];
    float along[2];
    for (int d = 0; d < 2; d++) {
        float position = __fadd_rn(__fdiv_rn((float)at.i[d] + 0.5f, a.factors[d]), -0.5f);
        i64 floor = (i64)floorf(position), last = a.source.ne[d] - 1;
        i64 one = floor < 0 ? 0 : floor, two = floor + 1 < 0 ? 0 : floor + 1;
        near[d][0] = one < last ? one : last;
        near[d][1] = two < last ? two : last;
        along[d] = fminf(fmaxf(position - (float)near[d][0], 0), 1);
    }
    float out = 0;
    for (int k = 0; k < 4; k++) {
        from.i[0] = near[0][k & 1];
        from.i[1] = near[1][k >> 1];
        float x = load(a.source.data + offset_of(a.source, from), a.source.dtype);
        out += x * (k & 1 ? along[0] : 1 - along[0]) * (k >> 1 ? along[1] : 1 - along[1]);
    }
    store(a.result.data + offset_of(a.result, at), a.result.dtype, out);
}

KERNEL(pad)(const PadParams &a) {
    if (element() >= a.count) return;
    Place at = place_of(element(), a.result.ne), from;
    bool inside = true;
    for (int d = 0; d < 4; d++) {
        from.i[d] = at.i[d] - a.before[d];
        inside = inside && from.i[d] >= 0 && from.i[d] < a.source.ne[d];
    }
    char *to = a.result.data + offset_of(a.result, at);
    if (inside) {
        move(to, a.source.data + offset_of(a.source, from), a.result.size);
        return;
    }
    for (int j = 0; j < a.result.size; j++) to[j] = 0;
}
