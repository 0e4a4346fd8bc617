// Ring attention drawn: which rank has which segments of a sample, and who attends to what at each turn, while keys and
// values travel one rank further.
//
// At turn t rank r has the keys and values of rank r - t. A rank attends from its own segments to those at hand: wholly
// to earlier ones, to itself under the causal mask, to later ones not at all.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// How much a rank attends to in each turn, in segments of queries times segments of keys; a segment and itself is half.
// By turn, then by rank.
std::vector<std::vector<double>> ring_work(std::int64_t ranks, bool zigzag);

std::string ring_picture(std::int64_t ranks);
// Tokens × heads of one sample before and after the all-to-all of Ulysses.
std::string ulysses_picture(std::int64_t ranks, std::int64_t heads);

}  // namespace lockstep
