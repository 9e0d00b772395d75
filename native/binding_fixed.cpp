// The fixed-point engine for Python: integer arrays in, integer arrays out.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "block.h"
#include "deltakwt_fixed.h"

namespace nb = nanobind;

namespace {

using Shorts = nb::ndarray<const int16_t, nb::c_contig, nb::device::cpu>;
using Ints = nb::ndarray<const int32_t, nb::c_contig, nb::device::cpu>;
template <typename T> using Array = nb::ndarray<nb::numpy, T>;

constexpr size_t LAYER_TENSORS = 13, LAYER_NUMBERS = 9;

void check(dk_status status, const std::string &what) {
    if (status != DK_OK) throw std::invalid_argument(what + ": " + dk_status_text(status));
}

template <typename T> Array<T> new_array(std::vector<size_t> shape) {
    size_t count = 1;
    for (size_t n : shape) count *= n;
    T *data = new T[count ? count : 1]();
    nb::capsule owner(data, [](void *p) noexcept { delete[] static_cast<T *>(p); });
    return Array<T>(data, shape.size(), shape.data(), owner);
}

dk_isa isa_of(const std::string &name) {
    for (int isa = 0; isa < DK_ISAS; isa++)
        if (name == dk_isa_name(dk_isa(isa))) return dk_isa(isa);
    throw std::invalid_argument("unknown instruction set '" + name + "'");
}

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
        const int32_t *theta = nullptr;
        if (!thresholds.is_none()) {
            held = nb::cast<Ints>(thresholds);
            if (held.size() != size_t(config_.layers) * DK_SITES)
                throw std::invalid_argument("thresholds: needs (layers, 9)");
            theta = held.data();
        }
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
            size_t size = dk_fixed_scratch_size(&config_);
            Block &scratch = thread_scratch(size);
            for (size_t i; (i = next++) < count;) {
                dk_fixed_watch watch = {};
                watch.peaks = peaks.data() + i * (layers + 1) * DK_PEAKS;
                if (counted) watch.macs = macs.data() + i * layers * DK_PRODUCTS;
                if (counted) watch.nonzeros = nonzeros.data() + i * layers * DK_SITES;
                dk_status status =
                    dk_fixed_run(model_, clips.data() + i * each, theta, scratch.data(), size,
                                 logits.data() + i * config_.labels, &watch);
                if (status != DK_OK) failure = status;
            }
        };
        {
            nb::gil_scoped_release release;
            if (!threads) threads = std::max(1u, std::thread::hardware_concurrency());
            std::vector<std::thread> others;
            for (size_t i = 1; i < std::min<size_t>(threads, count); i++) others.emplace_back(work);
            work();
            for (std::thread &thread : others) thread.join();
        }
        check(dk_status(failure.load()), "thresholds");
        return nb::make_tuple(logits, macs, nonzeros, peaks);
    }

    size_t memory() const {
        return dk_fixed_model_size(&config_) + dk_fixed_scratch_size(&config_);
    }

  private:
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

} // namespace

void bind_fixed(nb::module_ &m) {
    nb::class_<FixedModel>(m, "FixedModel")
        .def(
            nb::init<std::vector<uint32_t>, std::vector<Shorts>, Ints, Ints, const std::string &>(),
            nb::arg("sizes"), nb::arg("tensors"), nb::arg("head_bias"), nb::arg("numbers"),
            nb::arg("isa"))
        .def("batch", &FixedModel::batch, nb::arg("clips"), nb::arg("thresholds").none(),
             nb::arg("threads"), nb::arg("counted"))
        .def("memory", &FixedModel::memory);
}
