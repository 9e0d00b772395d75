#include "window.h"
#include "deltakwt_fixed.h"

#include <math.h>
#include <string.h>

void dk_window_init(dk_window *window, uint32_t frames, uint32_t hop, dk_feature *rows,
                    dk_feature *computed) {
    memset(window, 0, sizeof *window);
    window->frames = window->due = frames;
    window->hop = hop;
    window->rows = rows;
    window->computed = computed;
}

static void store_row(const dk_window *window, const float *row, dk_feature *to) {
#ifdef DK_SMALL
    dk_fixed_features(row, window->scales, 1, DK_COEFFICIENTS, to);
#else
    (void)window;
    memcpy(to, row, DK_COEFFICIENTS * sizeof *to);
#endif
}

/* Whether coefficient i differs too much for a window to be reused. */
static int is_far(const dk_window *window, uint32_t i, dk_feature a, dk_feature b) {
#ifdef DK_SMALL
    int32_t difference = a - b;
    return difference > window->reuse[i] || -difference > window->reuse[i];
#else
    (void)i;
    return fabsf(a - b) > window->reuse;
#endif
}

int dk_window_add(dk_window *window, const float *row) {
    store_row(window, row, window->rows + (size_t)window->next * DK_COEFFICIENTS);
    window->next = window->next + 1 < window->frames ? window->next + 1 : 0;
    if (--window->due) return 0;
    window->due = window->hop;
    return 1;
}

int dk_window_is_near(const dk_window *window) {
    const uint32_t frames = window->frames, allowed = window->is_quiet ? window->outliers : 0;
    uint32_t far = 0;
    if (!window->has_computed) return 0;
    for (uint32_t t = window->is_quiet ? frames - window->onset : 0; t < frames; t++) {
        uint32_t at = window->next + t < frames ? window->next + t : window->next + t - frames;
        const dk_feature *row = window->rows + (size_t)at * DK_COEFFICIENTS;
        const dk_feature *known = window->computed + (size_t)t * DK_COEFFICIENTS;
        for (uint32_t i = 0; i < DK_COEFFICIENTS; i++) {
            if (is_far(window, i, row[i], known[i]) && ++far > allowed) return 0;
        }
    }
    return 1;
}

const dk_feature *dk_window_take(dk_window *window) {
    const size_t row = DK_COEFFICIENTS, size = sizeof *window->rows;
    size_t older = window->frames - window->next;
    memcpy(window->computed, window->rows + window->next * row, older * row * size);
    memcpy(window->computed + older * row, window->rows, window->next * row * size);
    window->has_computed = 1;
    return window->computed;
}
