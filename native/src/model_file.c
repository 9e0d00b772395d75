/* Model files: reading and complete checking. docs/c-library.md describes the format; the writer is
 * src/deltakwt/export/binary.py. */
#include "deltakwt_spotter.h"
#include "internal.h"
#include "stored_integers.h"

#include <float.h>
#include <string.h>

enum {
    VERSION = 1,
    BYTE_ORDER_MARK = 0x01020304,
    CHECKED_FROM = 32,
    HAS_THRESHOLDS = 1,
    IS_FIXED = 2,
    STRIDE = 0x300, /* bits of the flags: the stride less one */
    MAX_PADDING = 128
};
static const char MAGIC[8] = {'D', 'E', 'L', 'T', 'A', 'K', 'W', 'T'};

/* The first bytes of a file, in the byte order of the file. All offsets are from its start. */
typedef struct {
    char magic[8];
    uint32_t version, byte_order;
    uint64_t file_size;
    uint32_t crc, header_size; /* CRC-32 of all bytes from CHECKED_FROM on */
    uint32_t dim, heads, mlp, layers, labels, frames, features, flags;
    double floor, quantile;
    uint32_t is_smooth, hop, onset, outliers;
    float reuse, possible, off;
    uint32_t smooth, patience, refractory;
    uint32_t text_size;
    float unknown_bias;
    uint64_t text, on, thresholds, weights; /* offsets */
} header;

/* CRC-32 as in zlib, four bits at a time. */
static uint32_t crc32(const uint8_t *data, size_t size) {
    uint32_t table[16], crc = 0xffffffffu;
    for (uint32_t i = 0; i < 16; i++) {
        uint32_t value = i;
        for (int bit = 0; bit < 4; bit++)
            value = value & 1u ? value >> 1 ^ 0xedb88320u : value >> 1;
        table[i] = value;
    }
    for (size_t i = 0; i < size; i++) {
        crc ^= data[i];
        crc = crc >> 4 ^ table[crc & 15u];
        crc = crc >> 4 ^ table[crc & 15u];
    }
    return ~crc;
}

static size_t tensor_size(const dk_config *c, uint32_t tensor) {
    const size_t d = c->dim, m = c->mlp;
    const size_t outer[4] = {c->features * d, d, d, (c->frames + (size_t)1) * d};
    const size_t block[DK_BLOCK_TENSORS] = {d * d, d * d, d * d, d * d, d, d, d,
                                            d * m, m,     m * d, d,     d, d};
    uint32_t head = 4 + DK_BLOCK_TENSORS * c->layers;
    if (tensor < 4) return outer[tensor];
    if (tensor >= head) return tensor == head ? d * c->labels : c->labels;
    return block[(tensor - 4) % DK_BLOCK_TENSORS];
}

/* Floats from the start of a tensor to that of the next: whole 64 bytes. */
static size_t tensor_step(const dk_config *c, uint32_t tensor) {
    return (tensor_size(c, tensor) + 15) / 16 * 16;
}

static size_t weights_count(const dk_config *c) {
    size_t count = 0;
    for (uint32_t i = 0; i < dk_tensor_count(c); i++) count += tensor_step(c, i);
    return count;
}

void dk_model_tensors(const dk_stored_model *model, const float **tensors) {
    const float *at = model->weights;
    for (uint32_t i = 0; i < dk_tensor_count(&model->config); i++) {
        tensors[i] = at;
        at += tensor_step(&model->config, i);
    }
}

const char *dk_model_label(const dk_stored_model *model, uint32_t label) {
    if (!model || label >= model->config.labels) return NULL;
    const char *text = model->labels;
    while (label--) text += strlen(text) + 1;
    return text;
}

/* Returns 1 if `count` elements of `size` bytes at `offset` lie inside the file and are aligned. */
static int is_inside(const header *h, uint64_t offset, uint64_t count, uint64_t size,
                     uint64_t alignment) {
    return offset >= sizeof *h && offset % alignment == 0 && offset <= h->file_size &&
           count <= (h->file_size - offset) / size;
}

/* Returns the length of one UTF-8 character, or 0 if it is not valid or a control character. The
 * text ends with a zero byte, which is no continuation byte. */
static size_t character(const uint8_t *text) {
    uint32_t first = text[0], value;
    size_t length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    static const uint32_t least[5] = {0, 0x20, 0x80, 0x800, 0x10000};
    if ((first >= 0x80 && first < 0xc2) || first > 0xf4) return 0;
    value = length == 1 ? first : first & (0xffu >> (length + 1));
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80) return 0;
        value = value << 6 | (text[i] & 0x3fu);
    }
    int is_control = value >= 0x7f && value < 0xa0;
    int is_surrogate = value >= 0xd800 && value < 0xe000;
    if (value < least[length] || value > 0x10ffff || is_control || is_surrogate) return 0;
    return length;
}

/* Returns 1 if the text is exactly `count` strings of printable UTF-8, each ended by a zero. */
static int is_text(const uint8_t *text, size_t size, uint32_t count) {
    if (!size || text[size - 1]) return 0;
    for (size_t at = 0; at < size;) {
        size_t length = text[at] ? character(text + at) : 1;
        if (!length || (!text[at] && !count--)) return 0;
        at += length;
    }
    return count == 0;
}

static int is_between(const float *x, size_t n, float low, float high) {
    int good = 1;
    for (size_t i = 0; i < n; i++) good &= x[i] >= low && x[i] <= high;
    return good;
}

static dk_status read_header(const void *data, size_t size, header *h) {
    if (size < sizeof *h) return DK_BAD_FILE;
    memcpy(h, data, sizeof *h);
    if (memcmp(h->magic, MAGIC, sizeof MAGIC) || h->version != VERSION ||
        h->byte_order != BYTE_ORDER_MARK || h->file_size != size || h->header_size != sizeof *h)
        return DK_BAD_FILE;
    return DK_OK;
}

/* Returns 1 if the file is not much larger than its parts. Otherwise the checksum of a small model
 * in a file of gigabytes would take long. */
static int is_compact(const header *h, uint64_t bytes) {
    return h->file_size <= sizeof *h + (uint64_t)h->text_size + bytes + MAX_PADDING;
}

static uint32_t stride_of(const header *h) { return (h->flags & STRIDE) / 0x100 + 1; }

/* The limits are those of src/deltakwt/listen/decision.py. */
static int is_rule(const header *h) {
    return h->hop - 1 < 100 && h->hop % stride_of(h) == 0 && h->onset - 1 < h->frames &&
           h->outliers <= 10000 && h->reuse >= 0.0f && h->reuse <= FLT_MAX && h->possible >= 0.0f &&
           h->possible <= 1.0f && h->off > 0.0f && h->off <= 1.0f && h->smooth - 1 < 100 &&
           h->patience <= 100 && h->refractory <= 6000 && h->unknown_bias >= -20.0f &&
           h->unknown_bias <= 20.0f;
}

dk_status dk_model_read(const void *data, size_t size, dk_stored_model *model) {
    header h;
    if (!data || !model || (uintptr_t)data % 8) return DK_BAD_ARGUMENT;
    if (read_header(data, size, &h)) return DK_BAD_FILE;
    const char *base = (const char *)data;
    dk_stored_model m;
    memset(&m, 0, sizeof m);
    const dk_config c = {h.dim, h.heads, h.mlp, h.layers, h.labels, h.frames, h.features};
    if (dk_check_config(&c)) return DK_BAD_FILE; /* bounds every size below */
    const int is_fixed = (h.flags & IS_FIXED) != 0;
    const size_t sites = (size_t)c.layers * DK_SITES, weights = weights_count(&c);
    const size_t bytes = is_fixed ? dk_integers_size(&c) : 4 * weights;
    m.config = c;
    m.stride = stride_of(&h);
    m.front_end.smooth = h.is_smooth != 0;
    m.front_end.floor = h.floor;
    m.front_end.quantile = h.quantile;
    if (dk_check_front_end(&m.front_end) || h.is_smooth > 1 ||
        h.flags & ~(uint32_t)(HAS_THRESHOLDS | IS_FIXED | STRIDE) || m.stride > DK_MOST_STRIDE ||
        !is_rule(&h))
        return DK_BAD_FILE;
    if (!is_inside(&h, h.text, h.text_size, 1, 1) || !is_inside(&h, h.on, c.labels, 4, 4) ||
        !is_inside(&h, h.thresholds, h.flags & HAS_THRESHOLDS ? sites : 0, 4, 4) ||
        !is_inside(&h, h.weights, bytes, 1, 64) || !is_compact(&h, 4 * (c.labels + sites) + bytes))
        return DK_BAD_FILE;
    if (h.crc != crc32((const uint8_t *)data + CHECKED_FROM, size - CHECKED_FROM))
        return DK_BAD_FILE;
    if (!is_text((const uint8_t *)base + h.text, h.text_size, c.labels + 2)) return DK_BAD_FILE;
    m.name = base + h.text;
    m.setting = m.name + strlen(m.name) + 1;
    m.labels = m.setting + strlen(m.setting) + 1;
    if (h.flags & HAS_THRESHOLDS) m.thresholds = (const float *)(base + h.thresholds);
    if (is_fixed)
        dk_integers_find(&c, base + h.weights, &m.integers);
    else
        m.weights = (const float *)(base + h.weights);
    const dk_decision rule = {
        h.hop,         h.onset,  h.outliers, h.reuse,      h.possible,
        h.off,         h.smooth, h.patience, h.refractory, (const float *)(base + h.on),
        h.unknown_bias};
    m.decision = rule;
    if (!is_between(rule.on, c.labels, FLT_MIN, 2.0f) ||
        (m.thresholds && !is_between(m.thresholds, sites, -1.0f, FLT_MAX)) ||
        (is_fixed ? !dk_integers_valid(&c, &m.integers)
                  : !dk_all_within(m.weights, weights, FLT_MAX)))
        return DK_BAD_FILE;
    *model = m;
    return DK_OK;
}
