// Images: patches, windows, other sizes. A thread does an element of the result.

// i: elements; kernel across, down, channels; strides; paddings; dilations; image across and down, in elements;
// steps of the image across, down, by channel, by image; whether rows have no height.
KERNEL(im2col)(ARGS) {
    if (element() >= (u64)a.i[0]) return;
    Place at = place_of(element(), a.r.ne);
    i64 width = a.i[1], height = a.i[2];
    i64 kx = at.i[0] % width, ky = at.i[0] / width % height, channel = at.i[0] / width / height;
    bool flat = a.i[16];
    i64 across = at.i[1], down = flat ? 0 : at.i[2], image = flat ? at.i[2] : at.i[3];
    i64 x = across * a.i[4] + kx * a.i[8] - a.i[6], y = down * a.i[5] + ky * a.i[9] - a.i[7];
    float value = 0;
    if (x >= 0 && x < a.i[10] && y >= 0 && y < a.i[11]) {
        value = load(a.s[1].p + x * a.i[12] + y * a.i[13] + channel * a.i[14] + image * a.i[15], a.s[1].type);
    }
    store(a.r.p + offset_of(a.r, at), a.r.type, value);
}

// i: elements, whether it is the mean, sizes, strides, paddings, whether windows go down.
KERNEL(pool)(ARGS) {
    if (element() >= (u64)a.i[0]) return;
    Place at = place_of(element(), a.r.ne);
    bool mean = a.i[1], down = a.i[8];
    i64 x = at.i[0] * a.i[4] - a.i[6], y = at.i[1] * a.i[5] - a.i[7], n = a.s[0].ne[0];
    i64 left = x < 0 ? 0 : x > n ? n : x, right = x + a.i[2];
    right = right < 0 ? 0 : right > n ? n : right;
    i64 top = 0, bottom = 1;
    if (down) {
        i64 rows = a.s[0].ne[1];
        top = y < 0 ? 0 : y > rows ? rows : y;
        bottom = y + a.i[3];
        bottom = bottom < 0 ? 0 : bottom > rows ? rows : bottom;
    }
    if (n == 0) bottom = top;
    Place from = at;
    float out = mean ? 0 : -3.40282347e38f;
    for (i64 row = top; row < bottom; row++) {
        if (down) from.i[1] = row;
        for (i64 i = left; i < right; i++) {
            from.i[0] = i;
            float v = load(a.s[0].p + offset_of(a.s[0], from), a.s[0].type);
            out = mean ? out + v : v > out ? v : out;
        }
    }
    if (mean) {
        if (down) out = out / ((float)a.i[2] * (float)a.i[3]);
        else out = right > left ? out / (float)(right - left) : 0;
    }
    store(a.r.p + offset_of(a.r, at), a.r.type, out);
}

__device__ i64 nearest(i64 at, float factor, i64 length) {
    i64 i = (i64)((float)at / factor);
    return i < length - 1 ? i : length - 1;
}

// i: elements. f: how much larger each dimension is.
KERNEL(upscale_nearest)(ARGS) {
    if (element() >= (u64)a.i[0]) return;
    Place at = place_of(element(), a.r.ne), from;
    for (int d = 0; d < 4; d++) from.i[d] = nearest(at.i[d], a.f[d], a.s[0].ne[d]);
    move(a.r.p + offset_of(a.r, at), a.s[0].p + offset_of(a.s[0], from), a.r.size);
}

KERNEL(upscale_bilinear)(ARGS) {
    if (element() >= (u64)a.i[0]) return;
    Place at = place_of(element(), a.r.ne), from;
    from.i[2] = nearest(at.i[2], a.f[2], a.s[0].ne[2]);
    from.i[3] = nearest(at.i[3], a.f[3], a.s[0].ne[3]);
    i64 near[2][2];
    float along[2];
    for (int d = 0; d < 2; d++) {
        float position = __fadd_rn(__fdiv_rn((float)at.i[d] + 0.5f, a.f[d]), -0.5f);
        i64 floor = (i64)floorf(position), last = a.s[0].ne[d] - 1;
        i64 one = floor < 0 ? 0 : floor, two = floor + 1 < 0 ? 0 : floor + 1;
        near[d][0] = one < last ? one : last;
        near[d][1] = two < last ? two : last;
        along[d] = fminf(fmaxf(position - (float)near[d][0], 0), 1);
    }
    float out = 0;
    for (int k = 0; k < 4; k++) {
        from.i[0] = near[0][k & 1];
        from.i[1] = near[1][k >> 1];
        float x = load(a.s[0].p + offset_of(a.s[0], from), a.s[0].type);
        out += x * (k & 1 ? along[0] : 1 - along[0]) * (k >> 1 ? along[1] : 1 - along[1]);
    }
    store(a.r.p + offset_of(a.r, at), a.r.type, out);
}

// i: elements, zeros before in each dimension.
KERNEL(pad)(ARGS) {
    if (element() >= (u64)a.i[0]) return;
    Place at = place_of(element(), a.r.ne), from;
    bool inside = true;
    for (int d = 0; d < 4; d++) {
        from.i[d] = at.i[d] - a.i[1 + d];
        inside = inside && from.i[d] >= 0 && from.i[d] < a.s[0].ne[d];
    }
    char *to = a.r.p + offset_of(a.r, at);
    if (inside) {
        move(to, a.s[0].p + offset_of(a.s[0], from), a.r.size);
        return;
    }
    for (int j = 0; j < a.r.size; j++) to[j] = 0;
}
