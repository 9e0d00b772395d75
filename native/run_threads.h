// Threads of the Python extension.
#pragma once

#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

// Runs `work` on `threads` threads, this one included. If the system refuses a thread, the others
// do the work. An exception of any thread is thrown again after all have ended.
template <typename Work> void run_threads(uint32_t threads, Work work) {
    std::exception_ptr failure;
    std::mutex mutex;
    auto guarded = [&] {
        try {
            work();
        } catch (...) {
            std::lock_guard<std::mutex> lock(mutex);
            failure = std::current_exception();
        }
    };
    std::vector<std::thread> others;
    try {
        others.reserve(threads);
        while (others.size() + 1 < threads) others.emplace_back(guarded);
    } catch (const std::exception &) {
        // The system refused a thread: the work is done by fewer threads.
    }
    guarded();
    for (std::thread &thread : others) thread.join();
    if (failure) std::rethrow_exception(failure);
}
