/* The integers of a model file in fixed point: where they lie, and the model made of them. */
#ifndef DK_STORED_INTEGERS_H
#define DK_STORED_INTEGERS_H

#include "deltakwt_fixed.h"
#include "deltakwt_spotter.h"
#include "internal.h"

/* Bytes of the integers of a model; each part is filled up to 64 bytes. */
size_t dk_integers_size(const dk_config *config);
/* Finds the parts of `data`, which is 64-byte aligned in the file. */
void dk_integers_find(const dk_config *config, const void *data, dk_stored_integers *out);
/* Returns 1 if the scales are usable. dk_fixed_init checks the integers. */
int dk_integers_valid(const dk_config *config, const dk_stored_integers *stored);

/* A model in fixed point inside the memory of a spotter. */
typedef struct {
    const dk_fixed_model *model;
    int32_t *thresholds; /* (layers, DK_SITES) */
    int16_t *features;   /* (frames, 40) of a clip */
    int32_t *logits;     /* (labels) */
    dk_fixed_layer_source *layers;
    void *memory; /* of the model */
} dk_integers;

/* Takes the memory from an arena. */
void dk_integers_lay_out(dk_integers *own, dk_arena *arena, const dk_config *config);
/* Makes the model, with the thresholds of `stored` as integers. */
dk_status dk_integers_init(dk_integers *own, const dk_stored_model *stored, dk_isa isa);
/* What a runner needs, of a model that was made. */
dk_fixed_setup dk_integers_setup(const dk_integers *own, const dk_stored_model *stored);
/* features (frames, 40) -> logits (labels). watch may be NULL. */
dk_status dk_integers_run(const dk_integers *own, const dk_stored_model *stored,
                          const float *features, void *scratch, size_t size, float *logits,
                          const dk_watch *watch);

#endif
