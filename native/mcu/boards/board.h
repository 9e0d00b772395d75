/* The services of a bare board for test programs: text output, file input, a count of instructions,
 * and the largest depth of the stack. */
#ifndef DK_BOARD_H
#define DK_BOARD_H

#include <stddef.h>
#include <stdint.h>

extern const char *const board_name;

void board_print(const char *text);
size_t board_arguments(char *line, size_t size); /* length of the command line, 0: none */
size_t board_read_file(const char *path, void *to, size_t size); /* bytes read, 0: no such file */
uint32_t board_instructions(void);                               /* since some start; wraps */
int board_main(void);                                            /* what the board runs */
void board_paint_stack(void);
size_t board_stack_used(void); /* since it was painted */
_Noreturn void board_exit(int status);

#endif
