# The C core as one static library; each instruction set is compiled with its own flags and chosen
# at run time.
set(DK_NATIVE "${CMAKE_CURRENT_LIST_DIR}")
set(DK_SOURCES attention.c block.c cpu.c delta.c frontend.c hearing.c model.c pack.c pass.c plan.c
               stream.c tables.c kernels/scalar.c fixed/fixed_model.c fixed/fixed_run.c
               kernels/fixed_scalar.c)
list(TRANSFORM DK_SOURCES PREPEND "${DK_NATIVE}/src/")

add_library(deltakwt_core STATIC ${DK_SOURCES})
target_include_directories(deltakwt_core PUBLIC "${DK_NATIVE}/include")
set_target_properties(deltakwt_core PROPERTIES C_STANDARD 11 C_STANDARD_REQUIRED ON
                      C_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden)
find_library(DK_MATH m)
if(DK_MATH)
  target_link_libraries(deltakwt_core PUBLIC ${DK_MATH})
endif()

function(dk_kernel file flags)
  target_sources(deltakwt_core PRIVATE "${DK_NATIVE}/src/kernels/${file}")
  set_source_files_properties("${DK_NATIVE}/src/kernels/${file}" PROPERTIES COMPILE_OPTIONS
                              "${flags}")
endfunction()

if(NOT MSVC)
  # No contraction behind our back: a fused multiply-add appears only where a kernel writes one.
  target_compile_options(deltakwt_core PRIVATE -Wall -Wextra -ffp-contract=off -fno-math-errno)
  # The scalar kernels stay scalar: they stand for a processor without vectors.
  set_source_files_properties("${DK_NATIVE}/src/kernels/scalar.c"
                              "${DK_NATIVE}/src/kernels/fixed_scalar.c" PROPERTIES COMPILE_OPTIONS
                              "-O2;-fno-tree-vectorize")
endif()

string(TOLOWER "${CMAKE_SYSTEM_PROCESSOR}" DK_PROCESSOR)
if(DK_PROCESSOR MATCHES "^(x86_64|amd64)$")
  if(MSVC)
    dk_kernel(avx2.c "/arch:AVX2")
    dk_kernel(fixed_avx2.c "/arch:AVX2")
    dk_kernel(avx512.c "/arch:AVX512")
  else()
    dk_kernel(avx2.c "-O3;-mavx2;-mfma;-mf16c")
    dk_kernel(fixed_avx2.c "-O3;-mavx2")
    dk_kernel(avx512.c "-O3;-mavx512f;-mavx512dq;-mavx512bw;-mavx512vl;-mfma;-mprefer-vector-width=512")
  endif()
  target_compile_definitions(deltakwt_core PRIVATE DK_HAVE_X86)
elseif(DK_PROCESSOR MATCHES "^(aarch64|arm64)$")
  dk_kernel(neon.c "-O3")
  target_compile_definitions(deltakwt_core PRIVATE DK_HAVE_NEON)
endif()
