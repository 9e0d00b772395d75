// The fixed-point engine for Python: integer arrays in, integer arrays out.
#include "binding.h"

#include <atomic>
#include <cmath>
#include <stdexcept>
#include <string>
#include <thread>

#include "deltakwt_fixed.h"
#include "run_threads.h"

using namespace binding;

namespace {

using Shorts = nb::ndarray<const int16_t, nb::c_contig, nb::device::cpu>;
using Ints = nb::ndarray<const int32_t, nb::c_contig, nb::device::cpu>;

constexpr size_t LAYER_TENSORS = 13, LAYER_NUMBERS = 9;

dk_fixed_layer_source layer_source(const Shorts *t, const int32_t *n) {
    dk_fixed_layer_source s;
    const int16_t **tensor[LAYER_TENSORS] = {
        &s.q,          &s.k,           &s.v,         &s.proj,         &s.proj_bias,
        &s.mlp_in,     &s.mlp_in_bias, &s.mlp_out,   &s.mlp_out_bias, &s.norm1,
        &s.norm1_bias, &s.norm2,       &s.norm2_bias};
    uint32_t *number[LAYER_NUMBERS] = {&s.norm1_epsilon, &s.norm2_epsilon, &s.norm1_shift,
                                       &s.norm2_shift,   &s.key_shift,     &s.score_bits,
                                       &s.hidden_bits,   &s.sum1_shift,    &s.sum2_shift};
    for (size_t i = 0; i < LAYER_TENSORS; i++) *tensor[i] = t[i].data();
    for (size_t i = 0; i < LAYER_NUMBERS; i++) *number[i] = uint32_t(n[i]);
    return s;
}

class FixedModel {
  public:
    // tensors: embed, positions, head, then thirteen per layer; numbers: embed shift, then nine
    // per layer, both in the order of layer_source above.
    FixedModel(std::vector<uint32_t> sizes, std::vector<Shorts> tensors, Ints head_bias,
               Ints numbers, const std::string &isa) {
        if (sizes.size() != 7) throw std::invalid_argument("config: needs seven sizes");
        config_ = {sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5], sizes[6]};
        size_t size = dk_fixed_model_size(&config_);
        if (!size) check(DK_BAD_CONFIG, "config");
        expect_sizes(tensors);
        if (head_bias.size() != config_.labels ||
            numbers.size() != 1 + LAYER_NUMBERS * config_.layers)
            throw std::invalid_argument("weights: wrong number of values");
        std::vector<dk_fixed_layer_source> layers;
        for (size_t l = 0; l < config_.layers; l++)
            layers.push_back(layer_source(tensors.data() + 3 + l * LAYER_TENSORS,
                                          numbers.data() + 1 + l * LAYER_NUMBERS));
        const dk_fixed_source source = {tensors[0].data(), tensors[1].data(),
                                        tensors[2].data(), head_bias.data(),
                                        layers.data(),     uint32_t(numbers.data()[0])};
        memory_ = Block(size);
        check(dk_fixed_init(memory_.data(), size, &config_, &source, isa_of(isa), &model_),
              "weights");
    }

    // clips (n, frames, features), thresholds (layers, 9) or None -> logits (n, labels), macs
    // (n, layers, 6), nonzeros (n, layers, 9), peaks (n, layers + 1, 11); without counting the two
    // counts are empty
    nb::tuple batch(Shorts clips, nb::object thresholds, uint32_t threads, bool counted) const {
        Ints held;
        const int32_t *theta = thresholds_of(thresholds, held);
        size_t each = size_t(config_.frames) * config_.features, layers = config_.layers;
        size_t count = clips.ndim() ? clips.shape(0) : 0;
        if (clips.size() != count * each) throw std::invalid_argument("features: wrong shape");
        auto logits = new_array<int32_t>({count, config_.labels});
        auto macs = new_array<int64_t>({counted ? count : 0, layers, DK_PRODUCTS});
        auto nonzeros = new_array<int64_t>({counted ? count : 0, layers, DK_SITES});
        auto peaks = new_array<int32_t>({count, layers + 1, DK_PEAKS});
        std::atomic<size_t> next{0};
        std::atomic<int> failure{DK_OK};
        auto work = [&] {
            Block &scratch = thread_scratch(dk_fixed_scratch_size(&config_));
            for (size_t i; (i = next++) < count;) {
                dk_fixed_watch watch = {};
                watch.peaks = peaks.data() + i * (layers + 1) * DK_PEAKS;
                if (counted) watch.macs = macs.data() + i * layers * DK_PRODUCTS;
                if (counted) watch.nonzeros = nonzeros.data() + i * layers * DK_SITES;
                dk_status status =
                    dk_fixed_run(model_, clips.data() + i * each, theta, scratch.data(),
                                 scratch.size(), logits.data() + i * config_.labels, &watch);
                if (status != DK_OK) failure = status;
            }
        };
        {
            nb::gil_scoped_release release;
            if (!threads) threads = std::max(1u, std::thread::hardware_concurrency());
            run_threads(uint32_t(std::min<size_t>(threads, count)), work);
        }
        check(dk_status(failure.load()), "thresholds");
        return nb::make_tuple(logits, macs, nonzeros, peaks);
    }

    // One clip: float features (frames, features), scales (features), thresholds (layers, 9) or
    // None -> logits (labels) times `step`, macs (layers, 6), nonzeros (layers, 9), and the number
    // of tensors that reached their limit; without counting the two counts are empty
    nb::tuple run(Floats features, Floats scales, nb::object thresholds, float step,
                  bool counted) const {
        if (features.size() != values()) throw std::invalid_argument("features: wrong shape");
        auto given = [&] { return features.data(); };
        return run_clip(given, scales, thresholds, step, counted);
    }

    // The same from sound (n): one call instead of two, and the features are nobody's array.
    nb::tuple classify(const FrontEnd &frontend, Floats sound, bool smooth, double floor,
                       double quantile, Floats scales, nb::object thresholds, float step,
                       bool counted) const {
        if (frontend.frames(sound.size()) != config_.frames)
            throw std::invalid_argument("sound: wrong length");
        const dk_front_end_setting setting = {smooth, floor, quantile};
        std::vector<float> features(values());
        auto made = [&] {
            check(frontend.run(sound.data(), sound.size(), setting, features.data()), "sound");
            return features.data();
        };
        return run_clip(made, scales, thresholds, step, counted);
    }

    // features (frames, features) times scales (features), in 16 bits
    Array<int16_t> features(Floats features, Floats scales) const {
        expect_scales(scales);
        if (features.size() % config_.features)
            throw std::invalid_argument("features: wrong shape");
        size_t rows = features.size() / config_.features;
        expect_finite(features.data(), features.size());
        auto out = new_array<int16_t>({rows, config_.features});
        dk_fixed_features(features.data(), scales.data(), uint32_t(rows), config_.features,
                          out.data());
        return out;
    }

    static void expect_finite(const float *features, size_t count) {
        if (!std::isfinite(largest_magnitude(features, count)))
            throw std::invalid_argument("features: a number is NaN or infinite");
    }

    void expect_scales(const Floats &scales) const {
        if (scales.size() != config_.features)
            throw std::invalid_argument("scales: needs one per feature");
    }

    // Thresholds (layers, 9) or None; `held` keeps them alive.
    const int32_t *thresholds_of(nb::object thresholds, Ints &held) const {
        if (thresholds.is_none()) return nullptr;
        held = nb::cast<Ints>(thresholds);
        if (held.size() != size_t(config_.layers) * DK_SITES)
            throw std::invalid_argument("thresholds: needs (layers, 9)");
        return held.data();
    }

    const dk_fixed_model *get() const { return model_; }
    const dk_config &config() const { return config_; }

  private:
    size_t values() const { return size_t(config_.frames) * config_.features; }

    // `features_of` makes or names the features of the clip; it runs without Python's lock.
    template <class Features>
    nb::tuple run_clip(Features features_of, const Floats &scales, const nb::object &thresholds,
                       float step, bool counted) const {
        Ints held;
        const int32_t *theta = thresholds_of(thresholds, held);
        expect_scales(scales);
        size_t layers = config_.layers;
        auto logits = new_array<float>({config_.labels});
        auto macs = new_array<int64_t>({counted ? layers : 0, DK_PRODUCTS});
        auto nonzeros = new_array<int64_t>({counted ? layers : 0, DK_SITES});
        std::vector<int32_t> peaks((layers + 1) * DK_PEAKS), integers(config_.labels);
        std::vector<int16_t> shorts(values());
        dk_fixed_watch watch = {counted ? macs.data() : nullptr,
                                counted ? nonzeros.data() : nullptr, peaks.data()};
        {
            nb::gil_scoped_release release;
            const float *features = features_of();
            expect_finite(features, shorts.size());
            dk_fixed_features(features, scales.data(), config_.frames, config_.features,
                              shorts.data());
            Block &scratch = thread_scratch(dk_fixed_scratch_size(&config_));
            check(dk_fixed_run(model_, shorts.data(), theta, scratch.data(), scratch.size(),
                               integers.data(), &watch),
                  "thresholds");
        }
        for (size_t i = 0; i < integers.size(); i++) logits.data()[i] = float(integers[i]) * step;
        return nb::make_tuple(logits, macs, nonzeros, dk_fixed_saturated(&config_, peaks.data()));
    }

    void expect_sizes(const std::vector<Shorts> &tensors) const {
        size_t d = config_.dim, m = config_.mlp;
        std::vector<size_t> sizes = {config_.features * d, (config_.frames + size_t(1)) * d,
                                     d * config_.labels};
        for (uint32_t l = 0; l < config_.layers; l++)
            sizes.insert(sizes.end(),
                         {d * d, d * d, d * d, d * d, d, d * m, m, m * d, d, d, d, d, d});
        bool fits = sizes.size() == tensors.size();
        for (size_t i = 0; fits && i < sizes.size(); i++) fits = tensors[i].size() == sizes[i];
        if (!fits) throw std::invalid_argument("weights: a tensor has a wrong size");
    }

    dk_config config_ = {};
    Block memory_;
    const dk_fixed_model *model_ = nullptr;
};

class FixedStreamRunner : public StreamRunner {
  public:
    FixedStreamRunner(const FixedModel &model, nb::object thresholds, Floats scales,
                      float logit_step, const FrontEnd &frontend, bool smooth, double floor,
                      double quantile, uint32_t hop, float reuse, uint32_t onset, uint32_t outliers,
                      Floats word_posteriors, uint32_t span, Floats bias)
        : StreamRunner(model.config().labels, dk_fixed_stream_runner_size(&model.config()),
                       word_posteriors, bias) {
        Ints held;
        model.expect_scales(scales);
        const dk_fixed_setup setup = {model.get(), model.thresholds_of(thresholds, held),
                                      scales.data(), logit_step};
        const dk_stream_options options = {
            {smooth, floor, quantile}, hop,  reuse,      onset, outliers,
            word_posteriors.data(),    span, bias.data()};
        check(dk_fixed_stream_runner_init(memory_.data(), memory_.size(), &setup, frontend.get(),
                                          &options, &runner_),
              "stream runner");
    }
};

} // namespace

void bind_fixed(nb::module_ &m) {
    nb::class_<FixedModel>(m, "FixedModel")
        .def(
            nb::init<std::vector<uint32_t>, std::vector<Shorts>, Ints, Ints, const std::string &>(),
            nb::arg("sizes"), nb::arg("tensors"), nb::arg("head_bias"), nb::arg("numbers"),
            nb::arg("isa"))
        .def("batch", &FixedModel::batch, nb::arg("clips"), nb::arg("thresholds").none(),
             nb::arg("threads"), nb::arg("counted"))
        .def("run", &FixedModel::run, nb::arg("features"), nb::arg("scales"),
             nb::arg("thresholds").none(), nb::arg("step"), nb::arg("counted"))
        .def("classify", &FixedModel::classify, nb::arg("frontend"), nb::arg("sound"),
             nb::arg("smooth"), nb::arg("floor"), nb::arg("quantile"), nb::arg("scales"),
             nb::arg("thresholds").none(), nb::arg("step"), nb::arg("counted"))
        .def("features", &FixedModel::features, nb::arg("features"), nb::arg("scales"));
    nb::class_<FixedStreamRunner, StreamRunner>(m, "FixedStreamRunner")
        .def(nb::init<const FixedModel &, nb::object, Floats, float, const FrontEnd &, bool, double,
                      double, uint32_t, float, uint32_t, uint32_t, Floats, uint32_t, Floats>(),
             nb::keep_alive<1, 2>(), nb::keep_alive<1, 6>(), nb::arg("model"),
             nb::arg("thresholds").none(), nb::arg("scales"), nb::arg("logit_step"),
             nb::arg("frontend"), nb::arg("smooth"), nb::arg("floor"), nb::arg("quantile"),
             nb::arg("hop"), nb::arg("reuse"), nb::arg("onset"), nb::arg("outliers"),
             nb::arg("word_posteriors"), nb::arg("span"), nb::arg("bias"));
}
