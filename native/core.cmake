# dk_add_core(TARGET TYPE): the C core as a library of that type. Each instruction set is compiled
# with its own flags; the one to use is chosen at run time.
set(DK_NATIVE "${CMAKE_CURRENT_LIST_DIR}")
set(DK_SOURCES attention.c block.c cpu.c decider.c delta.c frontend.c model.c model_file.c open.c
               pack.c pass.c plan.c spotter.c stored_integers.c stream.c stream_runner.c
               stream_setup.c tables.c wav.c window.c kernels/scalar.c fixed/fixed_model.c fixed/fixed_run.c fixed/fixed_scratch.c
               fixed_features.c kernels/fixed_scalar.c)
find_library(DK_MATH m)

string(TOLOWER "${CMAKE_SYSTEM_PROCESSOR}" DK_PROCESSOR)
if(DK_PROCESSOR MATCHES "^(x86_64|amd64)$")
  set(DK_DEFINITIONS DK_HAVE_X86)
  list(APPEND DK_SOURCES kernels/avx2.c kernels/avx512.c kernels/fixed_avx2.c
       kernels/fixed_avx512.c)
  if(MSVC)
    set(DK_AVX2 "/arch:AVX2")
    set(DK_AVX512 "/arch:AVX512")
  else()
    set(DK_AVX2 "-O3;-mavx2;-mfma;-mf16c;-mpopcnt;-mbmi")
    set(DK_AVX512 "-O3;-mavx512f;-mavx512dq;-mavx512bw;-mavx512vl;-mfma;-mpopcnt;-mbmi")
    list(APPEND DK_AVX512 -mprefer-vector-width=512 ${DK_AVX512_MORE}) # more: a toolchain file's
  endif()
  set_source_files_properties("${DK_NATIVE}/src/kernels/avx2.c"
                              "${DK_NATIVE}/src/kernels/fixed_avx2.c" PROPERTIES COMPILE_OPTIONS
                              "${DK_AVX2}")
  set_source_files_properties("${DK_NATIVE}/src/kernels/avx512.c"
                              "${DK_NATIVE}/src/kernels/fixed_avx512.c" PROPERTIES COMPILE_OPTIONS
                              "${DK_AVX512}")
elseif(DK_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(DK_DEFINITIONS DK_HAVE_NEON)
  list(APPEND DK_SOURCES kernels/neon.c kernels/fixed_neon.c)
  set_source_files_properties("${DK_NATIVE}/src/kernels/neon.c"
                              "${DK_NATIVE}/src/kernels/fixed_neon.c" PROPERTIES COMPILE_OPTIONS "-O3")
endif()
if(NOT MSVC)
  # The scalar kernels are not vectorised: they stand for a processor without vectors.
  set_source_files_properties("${DK_NATIVE}/src/kernels/scalar.c"
                              "${DK_NATIVE}/src/kernels/fixed_scalar.c" PROPERTIES COMPILE_OPTIONS
                              "-O2;-fno-tree-vectorize")
  set_source_files_properties("${DK_NATIVE}/src/fixed_features.c" PROPERTIES COMPILE_OPTIONS "-O3")
endif()
list(TRANSFORM DK_SOURCES PREPEND "${DK_NATIVE}/src/")

function(dk_add_core target type)
  add_library(${target} ${type} ${DK_SOURCES})
  target_include_directories(${target} PUBLIC "$<BUILD_INTERFACE:${DK_NATIVE}/include>"
                                              "$<INSTALL_INTERFACE:include>")
  target_compile_definitions(${target} PRIVATE ${DK_DEFINITIONS})
  set_target_properties(${target} PROPERTIES C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF
                        POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden)
  if(NOT MSVC)
    # A fused multiply-add is used only where a kernel asks for one.
    target_compile_options(${target} PRIVATE -Wall -Wextra -ffp-contract=off -fno-math-errno)
  endif()
  if(DK_MATH)
    target_link_libraries(${target} PUBLIC m)
  endif()
endfunction()
