/* Opening model files and WAV files: mapped where the system supports it, else read. This is the
 * only file of the library that calls the operating system. */
#define _POSIX_C_SOURCE 200809L
#include "deltakwt_spotter.h"

#include <string.h>

#if defined(__unix__) || defined(__APPLE__)

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void *load(const char *path, size_t *size) {
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO cannot block */
    void *memory = MAP_FAILED;
    struct stat about;
    if (descriptor < 0) return NULL;
    if (!fstat(descriptor, &about) && S_ISREG(about.st_mode) && about.st_size > 0) {
        *size = (size_t)about.st_size;
        memory = mmap(NULL, *size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    }
    close(descriptor);
    return memory == MAP_FAILED ? NULL : memory;
}

static void release(void *memory, size_t size) { munmap(memory, size); }

#else

#include <stdio.h>
#include <stdlib.h>

static void *load(const char *path, size_t *size) {
    FILE *stream = fopen(path, "rb");
    void *memory = NULL;
    long length;
    if (!stream) return NULL;
    if (!fseek(stream, 0, SEEK_END) && (length = ftell(stream)) > 0 &&
        !fseek(stream, 0, SEEK_SET) && (memory = malloc((size_t)length)) != NULL) {
        *size = fread(memory, 1, (size_t)length, stream);
    }
    fclose(stream);
    return memory;
}

static void release(void *memory, size_t size) {
    (void)size;
    free(memory);
}

#endif

dk_status dk_model_open(const char *path, dk_model_file *file) {
    if (!path || !file) return DK_BAD_ARGUMENT;
    memset(file, 0, sizeof *file);
    file->memory = load(path, &file->size);
    if (!file->memory) return DK_NO_FILE;
    dk_status status = dk_model_read(file->memory, file->size, &file->model);
    if (status) dk_model_close(file);
    return status;
}

void dk_model_close(dk_model_file *file) {
    if (!file || !file->memory) return;
    release(file->memory, file->size);
    memset(file, 0, sizeof *file);
}

dk_status dk_wav_open(const char *path, dk_wav_file *file) {
    if (!path || !file) return DK_BAD_ARGUMENT;
    memset(file, 0, sizeof *file);
    file->memory = load(path, &file->size);
    if (!file->memory) return DK_NO_FILE;
    dk_status status = dk_wav_read(file->memory, file->size, &file->samples, &file->count);
    if (status) dk_wav_close(file);
    return status;
}

void dk_wav_close(dk_wav_file *file) {
    if (!file || !file->memory) return;
    release(file->memory, file->size);
    memset(file, 0, sizeof *file);
}
