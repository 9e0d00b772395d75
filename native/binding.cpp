// The Python extension: NumPy arrays in and out, with the interpreter lock released meanwhile.
#include "binding.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <thread>

#include "run_threads.h"

using namespace binding;

namespace {

// Returns the largest magnitude, or infinity if a sample is NaN. One call instead of NumPy's three,
// which are slow in a quiet stream, where the caches are cold.
float loudest(Floats samples) {
    float most = largest_magnitude(samples.data(), samples.size());
    return most == most ? most : INFINITY;
}

// sizes (7) -> bytes (DK_SITES, 2): the reference of each site, and its running result
Array<uint64_t> state_bytes(std::vector<uint32_t> sizes) {
    if (sizes.size() != 7) throw std::invalid_argument("config: needs seven sizes");
    const dk_config config = {sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5], sizes[6]};
    if (!dk_scratch_size(&config)) check(DK_BAD_CONFIG, "config");
    auto bytes = new_array<uint64_t>({DK_SITES, 2});
    for (int site = 0; site < DK_SITES; site++) {
        dk_state_bytes found = dk_state_size(&config, dk_site(site));
        bytes.data()[2 * site] = found.reference;
        bytes.data()[2 * site + 1] = found.running;
    }
    return bytes;
}

std::vector<std::string> isas() {
    std::vector<std::string> names;
    for (int isa = 0; isa < DK_ISAS; isa++)
        if (dk_isa_available(dk_isa(isa))) names.emplace_back(dk_isa_name(dk_isa(isa)));
    return names;
}

// sounds (n, samples) -> features (n, frames, 40), on many threads
Array<float> batch_features(const FrontEnd &frontend, Floats sounds, bool smooth, double floor,
                            double quantile, uint32_t threads) {
    if (sounds.ndim() != 2) throw std::invalid_argument("sounds: must be (n, samples)");
    const size_t count = sounds.shape(0), samples = sounds.shape(1);
    const uint32_t frames = frontend.frames(samples);
    if (!frames) throw std::invalid_argument("sounds: shorter than one frame of 480 samples");
    auto out = new_array<float>({count, frames, DK_COEFFICIENTS});
    const dk_front_end_setting setting = {smooth, floor, quantile};
    std::atomic<size_t> next{0};
    std::atomic<int> failure{DK_OK};
    auto work = [&] {
        for (size_t i; (i = next++) < count;) {
            dk_status status = frontend.run(sounds.data() + i * samples, samples, setting,
                                            out.data() + i * frames * DK_COEFFICIENTS);
            if (status != DK_OK) failure = status;
        }
    };
    {
        nb::gil_scoped_release release;
        if (!threads) threads = std::max(1u, std::thread::hardware_concurrency());
        run_threads(uint32_t(std::min<size_t>(threads, count)), work);
    }
    check(dk_status(failure.load()), "sound");
    return out;
}

class Stream {
  public:
    Stream(const FrontEnd &frontend, bool smooth, double floor, double quantile)
        : memory_(dk_stream_size()) {
        const dk_front_end_setting setting = {smooth, floor, quantile};
        check(dk_stream_init(memory_.data(), memory_.size(), frontend.get(), &setting, &stream_),
              "stream");
    }

    // audio (n) -> (finished rows, 40)
    Array<float> push(Floats audio) {
        std::vector<float> features;
        uint32_t rows = 0;
        dk_status status;
        {
            nb::gil_scoped_release release;
            std::lock_guard<std::mutex> lock(mutex_);
            features.resize(size_t(dk_stream_rows(stream_, audio.size())) * DK_COEFFICIENTS);
            status = dk_stream_push(stream_, audio.data(), audio.size(), features.data(), &rows);
        }
        check(status, "sound");
        auto out = new_array<float>({rows, DK_COEFFICIENTS});
        std::copy_n(features.begin(), size_t(rows) * DK_COEFFICIENTS, out.data());
        return out;
    }

  private:
    Block memory_;
    std::mutex mutex_; // several Python threads may push
    dk_stream *stream_ = nullptr;
};

uint64_t nanoseconds() {
    return uint64_t(std::chrono::steady_clock::now().time_since_epoch().count());
}

class Model {
  public:
    Model(std::vector<uint32_t> sizes, std::vector<Floats> tensors, const std::string &isa) {
        if (sizes.size() != 7) throw std::invalid_argument("config: needs seven sizes");
        config_ = {sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5], sizes[6]};
        size_t size = dk_model_size(&config_);
        if (!size) check(DK_BAD_CONFIG, "config");
        if (tensors.size() != dk_tensor_count(&config_))
            throw std::invalid_argument("weights: wrong number of tensors");
        std::vector<const float *> pointers;
        for (const Floats &tensor : tensors) pointers.push_back(tensor.data());
        memory_ = Block(size);
        check(dk_model_init(memory_.data(), size, &config_, pointers.data(), isa_of(isa), &model_),
              "weights");
    }

    // features (frames, features), thresholds (layers, 9) or None -> logits, macs, nonzeros
    nb::tuple run(Floats features, nb::object thresholds, bool counted) const {
        Floats held;
        const float *theta = thresholds_of(thresholds, held);
        expect(features, size_t(config_.frames) * config_.features);
        auto logits = new_array<float>({config_.labels});
        dk_watch watch = {};
        nb::object macs = nb::none(), nonzeros = nb::none();
        if (counted) {
            auto m = new_array<int64_t>({config_.layers, DK_PRODUCTS});
            auto n = new_array<int64_t>({config_.layers, DK_SITES});
            watch.macs = m.data();
            watch.nonzeros = n.data();
            macs = nb::cast(m);
            nonzeros = nb::cast(n);
        }
        run_released(features.data(), theta, logits.data(), &watch);
        return nb::make_tuple(logits, macs, nonzeros);
    }

    // -> the nine sites' references (layers, T, width), then the layers' outputs (layers, T, d)
    nb::list trace(Floats features, nb::object thresholds) const {
        Floats held;
        const float *theta = thresholds_of(thresholds, held);
        expect(features, size_t(config_.frames) * config_.features);
        size_t tokens = config_.frames + 1;
        dk_watch watch = {};
        nb::list out;
        for (int site = 0; site < DK_SITES; site++) {
            bool square = site == DK_SITE_SCORES || site == DK_SITE_SOFTMAX;
            size_t width = square                       ? tokens * config_.heads
                           : site == DK_SITE_MLP_HIDDEN ? config_.mlp
                                                        : config_.dim;
            auto rows = new_array<float>({config_.layers, tokens, width});
            watch.trace[site] = rows.data();
            out.append(rows);
        }
        auto output = new_array<float>({config_.layers, tokens, config_.dim});
        watch.output = output.data();
        out.append(output);
        std::vector<float> logits(config_.labels);
        run_released(features.data(), theta, logits.data(), &watch);
        return out;
    }

    // Nanoseconds of every stage, (layers, DK_STAGES), summed over `repeats` runs.
    Array<uint64_t> times(Floats features, nb::object thresholds, uint32_t repeats) const {
        Floats held;
        const float *theta = thresholds_of(thresholds, held);
        expect(features, size_t(config_.frames) * config_.features);
        auto ticks = new_array<uint64_t>({config_.layers, DK_STAGES});
        dk_watch watch = {};
        watch.clock = nanoseconds;
        watch.ticks = ticks.data();
        std::vector<float> logits(config_.labels);
        for (uint32_t i = 0; i < repeats; i++)
            run_released(features.data(), theta, logits.data(), &watch);
        return ticks;
    }

    // Runs many clips on many threads: audio (n, samples) with a front end, or features without.
    nb::tuple batch(const FrontEnd *frontend, Floats input, nb::object thresholds, bool smooth,
                    double floor, double quantile, uint32_t threads, bool counted) const;

    const dk_model *get() const { return model_; }

    const float *thresholds_of(nb::object thresholds, Floats &held) const {
        if (thresholds.is_none()) return nullptr;
        held = nb::cast<Floats>(thresholds);
        if (held.size() != size_t(config_.layers) * DK_SITES)
            throw std::invalid_argument("thresholds: needs (layers, 9)");
        return held.data();
    }

  private:
    static void expect(const Floats &features, size_t count) {
        if (features.size() != count) throw std::invalid_argument("features: wrong shape");
    }

    dk_status run_one(const float *features, const float *theta, float *logits,
                      const dk_watch *watch) const {
        Block &scratch = thread_scratch(dk_scratch_size(&config_));
        return dk_run(model_, features, theta, scratch.data(), scratch.size(), logits, watch);
    }

    void run_released(const float *features, const float *theta, float *logits,
                      const dk_watch *watch) const {
        dk_status status;
        {
            nb::gil_scoped_release release;
            status = run_one(features, theta, logits, watch);
        }
        check(status, "features");
    }

    dk_config config_ = {};
    Block memory_;
    const dk_model *model_ = nullptr;
};

nb::tuple Model::batch(const FrontEnd *frontend, Floats input, nb::object thresholds, bool smooth,
                       double floor, double quantile, uint32_t threads, bool counted) const {
    Floats held;
    const float *theta = thresholds_of(thresholds, held);
    size_t features = size_t(config_.frames) * config_.features;
    size_t clips = input.ndim() ? input.shape(0) : 0, each = clips ? input.size() / clips : 0;
    if (clips && (frontend ? frontend->frames(each) != config_.frames : each != features))
        throw std::invalid_argument("batch: clips of a wrong length");
    auto logits = new_array<float>({clips, config_.labels});
    auto macs = new_array<int64_t>({counted ? clips : 0, config_.layers, DK_PRODUCTS});
    auto nonzeros = new_array<int64_t>({counted ? clips : 0, config_.layers, DK_SITES});
    const dk_front_end_setting setting = {smooth, floor, quantile};

    std::atomic<size_t> next{0}, failed{clips};
    std::atomic<int> failure{DK_OK};
    auto work = [&] {
        std::vector<float> computed(frontend ? features : 0);
        for (size_t i; (i = next++) < clips;) {
            const float *clip = input.data() + i * each;
            dk_watch watch = {};
            if (counted) {
                watch.macs = macs.data() + i * config_.layers * DK_PRODUCTS;
                watch.nonzeros = nonzeros.data() + i * config_.layers * DK_SITES;
            }
            dk_status status =
                frontend ? frontend->run(clip, each, setting, computed.data()) : DK_OK;
            if (status == DK_OK)
                status = run_one(frontend ? computed.data() : clip, theta,
                                 logits.data() + i * config_.labels, &watch);
            if (status == DK_OK) continue;
            failure = status;
            failed = i;
            next = clips;
        }
    };
    {
        nb::gil_scoped_release release;
        if (!threads) threads = std::max(1u, std::thread::hardware_concurrency());
        threads = uint32_t(std::min<size_t>(threads, clips));
        run_threads(threads, work);
    }
    check(dk_status(failure.load()), "clip " + std::to_string(failed.load()));
    return nb::make_tuple(logits, macs, nonzeros);
}

class FloatStreamRunner : public StreamRunner {
  public:
    FloatStreamRunner(const Model &model, nb::object thresholds, const FrontEnd &frontend,
                      bool smooth, double floor, double quantile, uint32_t hop, float reuse,
                      uint32_t onset, uint32_t outliers, Floats word_posteriors, uint32_t span,
                      Floats bias)
        : StreamRunner(model.get()->config.labels, dk_stream_runner_size(&model.get()->config),
                       word_posteriors, bias) {
        Floats held;
        const float *theta = model.thresholds_of(thresholds, held);
        const dk_stream_options options = {
            {smooth, floor, quantile}, hop,  reuse,      onset, outliers,
            word_posteriors.data(),    span, bias.data()};
        check(dk_stream_runner_init(memory_.data(), memory_.size(), model.get(), frontend.get(),
                                    theta, &options, &runner_),
              "stream runner");
    }
};

} // namespace

void bind_training(nb::module_ &m); // training.cpp
void bind_fixed(nb::module_ &m);    // binding_fixed.cpp

NB_MODULE(_native, m) {
    m.doc() = "The native core of deltakwt; use deltakwt.core.engine.";
    m.def("isas", &isas);
    m.def("best_isa", [] { return dk_isa_name(dk_isa_best()); });
    m.def("loudest", &loudest, nb::arg("samples"));
    m.def("state_bytes", &state_bytes, nb::arg("sizes"));
    nb::class_<FrontEnd>(m, "FrontEnd")
        .def(nb::init<const std::string &, uint32_t>(), nb::arg("isa"), nb::arg("stride"))
        .def("features", &FrontEnd::features, nb::arg("audio"), nb::arg("smooth"), nb::arg("floor"),
             nb::arg("quantile"))
        .def("batch", &batch_features, nb::arg("sounds"), nb::arg("smooth"), nb::arg("floor"),
             nb::arg("quantile"), nb::arg("threads"));
    nb::class_<Stream>(m, "Stream")
        .def(nb::init<const FrontEnd &, bool, double, double>(), nb::keep_alive<1, 2>(),
             nb::arg("frontend"), nb::arg("smooth"), nb::arg("floor"), nb::arg("quantile"))
        .def("push", &Stream::push, nb::arg("audio"));
    nb::class_<Model>(m, "Model")
        .def(nb::init<std::vector<uint32_t>, std::vector<Floats>, const std::string &>(),
             nb::arg("sizes"), nb::arg("tensors"), nb::arg("isa"))
        .def("run", &Model::run, nb::arg("features"), nb::arg("thresholds").none(),
             nb::arg("counted"))
        .def("trace", &Model::trace, nb::arg("features"), nb::arg("thresholds").none())
        .def("times", &Model::times, nb::arg("features"), nb::arg("thresholds").none(),
             nb::arg("repeats"))
        .def("batch", &Model::batch, nb::arg("frontend").none(), nb::arg("clips"),
             nb::arg("thresholds").none(), nb::arg("smooth"), nb::arg("floor"), nb::arg("quantile"),
             nb::arg("threads"), nb::arg("counted"));
    nb::class_<StreamRunner>(m, "StreamRunner").def("push", &StreamRunner::push, nb::arg("audio"));
    nb::class_<FloatStreamRunner, StreamRunner>(m, "FloatStreamRunner")
        .def(nb::init<const Model &, nb::object, const FrontEnd &, bool, double, double, uint32_t,
                      float, uint32_t, uint32_t, Floats, uint32_t, Floats>(),
             nb::keep_alive<1, 2>(), nb::keep_alive<1, 4>(), nb::arg("model"),
             nb::arg("thresholds").none(), nb::arg("frontend"), nb::arg("smooth"), nb::arg("floor"),
             nb::arg("quantile"), nb::arg("hop"), nb::arg("reuse"), nb::arg("onset"),
             nb::arg("outliers"), nb::arg("word_posteriors"), nb::arg("span"), nb::arg("bias"));
    bind_training(m);
    bind_fixed(m);
}
