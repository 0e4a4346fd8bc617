#include "data/example_text.h"

// The assembler takes the file as it is; a string literal of half a megabyte would cost the compiler a minute.
asm(R"(
  .section .rodata
  .global lockstep_example_begin
  .global lockstep_example_end
lockstep_example_begin:
  .incbin ")" LOCKSTEP_EXAMPLE_TEXT R"("
lockstep_example_end:
  .previous
)");
extern "C" const char lockstep_example_begin[], lockstep_example_end[];

namespace lockstep {

std::string_view example_text() {
  return {lockstep_example_begin, static_cast<std::size_t>(lockstep_example_end - lockstep_example_begin)};
}

}  // namespace lockstep
