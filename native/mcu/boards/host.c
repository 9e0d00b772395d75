/* This machine as a board, for comparison. It counts no instructions. */
#include "board.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const board_name = "host";
static int argument_count;
static char **arguments;

void board_print(const char *text) { fputs(text, stdout); }

size_t board_arguments(char *line, size_t size) {
    size_t used = 0;
    for (int i = 0; i < argument_count; i++) {
        size_t length = strlen(arguments[i]);
        if (used + length + 2 > size) break;
        memcpy(line + used, arguments[i], length);
        used += length;
        line[used++] = ' ';
    }
    line[used] = '\0';
    return used;
}

size_t board_read_file(const char *path, void *to, size_t size) {
    FILE *file = fopen(path, "rb");
    if (!file) return 0;
    size_t read = fread(to, 1, size, file);
    fclose(file);
    return read;
}

uint32_t board_instructions(void) { return 0; }
void board_paint_stack(void) {}
size_t board_stack_used(void) { return 0; }
_Noreturn void board_exit(int status) { exit(status); }

int main(int count, char **values) {
    argument_count = count;
    arguments = values;
    return board_main();
}
