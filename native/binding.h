// What the files of the Python extension share: memory, arrays, errors, the front end and streams.
#ifndef DELTAKWT_BINDING_H
#define DELTAKWT_BINDING_H

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "deltakwt.h"

namespace nb = nanobind;

namespace binding {

using Floats = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
template <typename T> using Array = nb::ndarray<nb::numpy, T>;

// ValueError for a refused input; OverflowError for logits that are not finite.
inline void check(dk_status status, const std::string &what) {
    if (status == DK_BAD_LOGITS) throw std::overflow_error(dk_status_text(status));
    if (status != DK_OK) throw std::invalid_argument(what + ": " + dk_status_text(status));
}

struct FreeAligned {
    size_t alignment = 0;
    void operator()(void *p) const { ::operator delete(p, std::align_val_t(alignment)); }
};

// Memory for one object of the core. Large blocks ask for huge pages: every clip reads all weights,
// and with small pages the processor would look up an address every few rows.
class Block {
  public:
    Block() = default;
    explicit Block(size_t size) : size_(size) {
        constexpr size_t huge = size_t(2) << 20;
        size_t alignment = size >= huge / 2 ? huge : 64;
        size_t rounded = (size + alignment - 1) / alignment * alignment;
        // Not std::aligned_alloc, which Windows lacks.
        memory_ = {::operator new(rounded, std::align_val_t(alignment)), FreeAligned{alignment}};
#if defined(__linux__)
        if (alignment == huge) madvise(memory_.get(), rounded, MADV_HUGEPAGE);
#endif
    }
    void *data() const { return memory_.get(); }
    size_t size() const { return size_; }

  private:
    std::unique_ptr<void, FreeAligned> memory_;
    size_t size_ = 0;
};

// Returns the scratch block of the calling thread, grown to at least `size` bytes.
inline Block &thread_scratch(size_t size) {
    thread_local Block scratch;
    if (scratch.size() < size) scratch = Block(size);
    return scratch;
}

template <typename T> Array<T> new_array(std::vector<size_t> shape) {
    size_t count = 1;
    for (size_t n : shape) count *= n;
    T *data = new T[count ? count : 1]();
    nb::capsule owner(data, [](void *p) noexcept { delete[] static_cast<T *>(p); });
    return Array<T>(data, shape.size(), shape.data(), owner);
}

// Returns the largest magnitude, or NaN if a value is NaN. Without their sign, floats have the
// order of their bits, and NaN comes last: a maximum of integers, which compilers turn into
// vectors.
inline float largest_magnitude(const float *values, size_t count) {
    int32_t most = 0, bits;
    for (size_t i = 0; i < count; i++) {
        std::memcpy(&bits, values + i, sizeof bits);
        most = std::max(most, bits & INT32_MAX);
    }
    float size;
    std::memcpy(&size, &most, sizeof size);
    return size;
}

inline dk_isa isa_of(const std::string &name) {
    for (int isa = 0; isa < DK_ISAS; isa++)
        if (name == dk_isa_name(dk_isa(isa))) return dk_isa(isa);
    throw std::invalid_argument("unknown instruction set '" + name + "'");
}

class FrontEnd {
  public:
    FrontEnd(const std::string &isa, uint32_t stride) : memory_(dk_frontend_size()) {
        check(dk_frontend_init_stride(memory_.data(), memory_.size(), isa_of(isa), stride,
                                      &frontend_),
              isa);
    }

    // audio (n) -> (frames, 40)
    Array<float> features(Floats audio, bool smooth, double floor, double quantile) const {
        size_t samples = audio.size();
        uint32_t frames = this->frames(samples);
        if (!frames) throw std::invalid_argument("sound: shorter than one frame of 480 samples");
        auto out = new_array<float>({frames, DK_COEFFICIENTS});
        const dk_front_end_setting setting = {smooth, floor, quantile};
        dk_status status;
        {
            nb::gil_scoped_release release;
            status = run(audio.data(), samples, setting, out.data());
        }
        check(status, "sound");
        return out;
    }

    dk_status run(const float *audio, size_t samples, const dk_front_end_setting &setting,
                  float *out) const {
        Block &scratch = thread_scratch(dk_features_scratch_size(frames(samples)));
        return dk_features(frontend_, audio, samples, &setting, scratch.data(), scratch.size(),
                           out);
    }

    const dk_frontend *get() const { return frontend_; }
    uint32_t frames(size_t samples) const { return dk_frontend_frames(frontend_, samples); }

  private:
    Block memory_;
    const dk_frontend *frontend_ = nullptr;
};

// A stream runner over either engine: the constructors of its subclasses initialise `runner_`.
class StreamRunner {
  public:
    // audio (n) -> logits (windows, labels), how many windows were computed, their MACs, and how
    // many tensors reached the limit of 16 bits
    nb::tuple push(Floats audio) {
        std::vector<float> logits;
        dk_stream_counts counts;
        dk_status status;
        {
            nb::gil_scoped_release release;
            std::lock_guard<std::mutex> lock(mutex_);
            logits.resize(size_t(dk_stream_runner_windows(runner_, audio.size())) * labels_ + 1);
            status =
                dk_stream_runner_push(runner_, audio.data(), audio.size(), logits.data(), &counts);
        }
        check(status, "sound");
        auto out = new_array<float>({counts.windows, labels_});
        std::copy_n(logits.begin(), size_t(counts.windows) * labels_, out.data());
        return nb::make_tuple(out, counts.computed, counts.macs, counts.saturated);
    }

  protected:
    StreamRunner(uint32_t labels, size_t size, const Floats &word_posteriors, const Floats &bias)
        : labels_(labels), memory_(size) {
        if (word_posteriors.size() != labels || bias.size() != labels)
            throw std::invalid_argument("word_posteriors, bias: one value per label each");
    }

    uint32_t labels_;
    Block memory_;
    dk_stream_runner *runner_ = nullptr;

  private:
    std::mutex mutex_; // several Python threads may push
};

} // namespace binding

#endif
