// Memory of the two Python bindings.
#ifndef DELTAKWT_BLOCK_H
#define DELTAKWT_BLOCK_H

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

// Memory for one object of the core. Large blocks ask for huge pages: every clip reads all weights,
// and with small pages the processor would look up an address every few rows.
class Block {
  public:
    Block() = default;
    explicit Block(size_t size) : size_(size) {
        constexpr size_t huge = size_t(2) << 20;
        size_t alignment = size >= huge / 2 ? huge : 64;
        size_t rounded = (size + alignment - 1) / alignment * alignment;
        memory_.reset(std::aligned_alloc(alignment, rounded));
        if (!memory_) throw std::bad_alloc();
#if defined(__linux__)
        if (alignment == huge) madvise(memory_.get(), rounded, MADV_HUGEPAGE);
#endif
    }
    void *data() const { return memory_.get(); }
    size_t size() const { return size_; }

  private:
    struct Free {
        void operator()(void *p) const { std::free(p); }
    };
    std::unique_ptr<void, Free> memory_;
    size_t size_ = 0;
};

// Returns the scratch block of the calling thread, grown to at least `size` bytes.
inline Block &thread_scratch(size_t size) {
    thread_local Block scratch;
    if (scratch.size() < size) scratch = Block(size);
    return scratch;
}

#endif
