// Numbers for people: bytes, counts and durations in a few characters.
#pragma once
#include <cstdint>
#include <string>

namespace lockstep {

std::string byte_text(std::int64_t bytes);   // "812 B", "4.0 KiB", "1.23 GiB"
std::string count_text(double count);        // "812", "4.99M", "405.9B"
std::string duration_text(double seconds);   // "0:42", "12:07", "3:04:05"
std::string seconds_text(double seconds);    // "812 us", "4.32 ms", "12.1 s", "3.2 h"
std::string grouped_digits(std::int64_t n);  // "4,999,424"

}  // namespace lockstep
